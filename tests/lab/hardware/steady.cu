/* A steady load in plain CUDA, for machines without PyTorch and CuPy: see load.py for what it must do.
 *
 * Every warp multiplies 16x16 half-precision fragments on the tensor cores (plain multiply-add before
 * Volta). It takes no memory to speak of, calibrates an iteration to about 5 ms, and changes no setting.
 */
#include <csignal>
#include <cstdio>
#include <cstdlib>
#include <ctime>
#include <cuda_fp16.h>
#include <mma.h>

static volatile sig_atomic_t ended = 0;
static void end(int) { ended = 1; }

static double now() {
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return t.tv_sec + t.tv_nsec * 1e-9;
}

__global__ void steady(float *out, int rounds) {
#if !defined(__CUDA_ARCH__) || __CUDA_ARCH__ >= 700
    using namespace nvcuda;
    wmma::fragment<wmma::matrix_a, 16, 16, 16, half, wmma::row_major> a;
    wmma::fragment<wmma::matrix_b, 16, 16, 16, half, wmma::col_major> b;
    wmma::fragment<wmma::accumulator, 16, 16, 16, float> c[4];
    /* Small numbers of either sign, different in each lane: a product of zeros takes less power. */
    for (int i = 0; i < a.num_elements; i++) a.x[i] = __float2half(((threadIdx.x * 37 + i * 11) % 29 - 14) * 0.01f);
    for (int i = 0; i < b.num_elements; i++) b.x[i] = __float2half(((threadIdx.x * 17 + i * 23) % 31 - 15) * 0.01f);
    for (int k = 0; k < 4; k++) wmma::fill_fragment(c[k], 0.0f);
    for (int r = 0; r < rounds; r++)
        for (int k = 0; k < 4; k++) wmma::mma_sync(c[k], a, b, c[k]);
    float sum = c[0].x[0] + c[1].x[0] + c[2].x[0] + c[3].x[0];
#else
    float sum = threadIdx.x * 0.001f;
    for (int r = 0; r < rounds * 16; r++) sum = fmaf(sum, 0.999f, 0.001f);
#endif
    if (sum == 12345.678f) out[0] = sum; /* so that the work is not optimised away */
}

static int fail(const char *what, cudaError_t error) {
    printf("%s: %s\n", what, cudaGetErrorString(error));
    return 3;
}

static float *out;
static int blocks;

static double iterate(int rounds) {
    double began = now();
    steady<<<blocks, 256>>>(out, rounds);
    cudaError_t error = cudaDeviceSynchronize();
    if (error != cudaSuccess) exit(fail("the kernel", error));
    return now() - began;
}

int main(int, char **argv) {
    cudaDeviceProp about;
    cudaError_t error = cudaGetDeviceProperties(&about, 0);
    if (error != cudaSuccess) return fail("cudaGetDeviceProperties", error);
    if ((error = cudaMalloc((void **)&out, 256)) != cudaSuccess) return fail("cudaMalloc", error);
    blocks = about.multiProcessorCount * 8;
    signal(SIGTERM, end);
    int rounds = 1000;
    iterate(rounds);
    for (double took = iterate(rounds); took < 0.005 && rounds < (1 << 28); took = iterate(rounds))
        rounds = took < 0.0005 ? rounds * 8 : (int)(rounds * 0.0053 / took) + 1;
    printf("{\"load\": \"CUDA, %d rounds of multiply-add on %d blocks an iteration\", \"tensor\": %s}\n",
           rounds, blocks, about.major >= 7 ? "true" : "false");
    fflush(stdout);
    FILE *file = fopen(argv[1], "wb");
    if (!file) return 3;
    double until = now() + atof(argv[2]);
    while (!ended && now() < until) {
        double record[2];
        record[1] = iterate(rounds);
        record[0] = now();
        fwrite(record, sizeof record, 1, file);
    }
    fclose(file);
    return 0;
}
