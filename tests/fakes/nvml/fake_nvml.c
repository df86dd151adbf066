/* A stand-in for libnvidia-ml.so.1: a node of eight H100s whose calls cost nothing.
 *
 * For tests and benchmarks on machines without a GPU. It exports what coldplate's NVML backend and
 * nvitop-exporter call. Values move with time, counters only grow, and a control file (the path is in the
 * environment variable COLDPLATE_FAKE_NVML; without it the node is healthy) can break things while a
 * program runs. One command a line:
 *
 *   lost N          GPU N has fallen off the bus (GPU_IS_LOST)
 *   hang N          a call on GPU N does not return while the line is there
 *   hang-reads N    the same, but GPU N says who it is
 *   hang-init       nvmlInit does not return while the line is there
 *   gone N          GPU N is not on the bus: the driver does not count it, and those behind it have smaller indexes
 *   board N B       the board in place N is another one, number B: with another UUID and serial number
 *   denied N        calls on GPU N end with NO_PERMISSION
 *   fail N CODE     calls on GPU N end with this return code, such as 999 (UNKNOWN)
 *   fabric N STATUS the registration of GPU N with the NVLink fabric completed with this return code
 *   segv            the next call on a GPU crashes the process
 *   unloaded        every call ends with DRIVER_NOT_LOADED
 *   mismatch        every call ends with LIB_RM_VERSION_MISMATCH
 *   xid N CODE      an XID event on GPU N, delivered once for each such line that is appended
 *   count N         the node has N GPUs (0 to 16)
 *   reset-counters  energy, link bytes and throttle times start again from 0 when the line appears
 *   process N PID   process PID computes on GPU N and holds 1 GiB of its memory (256 of them at most)
 *   client N PID    the same, as a client of an MPS server
 *   sm N PERCENT    the next process of GPU N that has no such line yet runs kernels for so much of the time
 *   mig N ID [PCT]  MIG is on, and GPU N has GPU instance ID (1 to 7); each of its GPM metrics M is M + PCT percent,
 *                   and without PCT the driver does not support its GPM
 *   balloon MIB     the process takes so much memory, and more with each call on a GPU
 *   babble          each call on a GPU writes garbage into every pipe that the process can write to, but standard error
 *   freeze T        values are those of T seconds after the first call
 *
 * Replace the file or append to it; one that is seen half-written is half obeyed. It is looked at no more
 * than ten times a second. Layouts and names: NVIDIA's nvml.h as rendered by
 * nvidia-ml-py; every integer type here is the header's.
 */
#define _GNU_SOURCE
#include <fcntl.h>
#include <math.h>
#include <pthread.h>
#include <signal.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

enum { OK = 0, INVALID = 2, UNSUPPORTED = 3, DENIED = 4, NOT_FOUND = 6, TOO_SMALL = 7, UNLOADED = 9, TIMEOUT = 10, LOST = 15, MISMATCH = 18 };
enum { MAX_GPUS = 16, MAX_INSTANCES = 8, LINKS = 18, MAX_XIDS = 4096, MAX_PROCESSES = 256 };
#define API __attribute__((visibility("default")))

typedef struct { int index, instance; } gpu_t; /* instance 0: the whole GPU */
typedef struct { uint32_t registered; int seen; } events_t;
typedef struct { double at, percent; } sample_t;
typedef struct {
    uint32_t field, scope;
    int64_t timestamp, latency;
    uint32_t type, code;
    union { double d; uint32_t u32; uint64_t u64; int32_t i32; } value;
} field_t;
typedef struct { uint32_t id, code; double value; const char *names[3]; } metric_t;
typedef struct { uint32_t version, count; sample_t *first, *second; metric_t metrics[]; } metrics_t;
typedef struct { uint32_t pid; uint64_t memory; uint32_t gpu_instance, compute_instance; } process_t;
typedef struct { uint32_t pid; uint64_t time; uint32_t sm, memory, encoder, decoder; } share_t;
typedef struct { gpu_t *device; uint64_t type, data; uint32_t gpu_instance, compute_instance; } event_t;

static gpu_t gpus[MAX_GPUS], instances[MAX_GPUS][MAX_INSTANCES];
typedef struct {
    int count, segv, unloaded, mismatch, resets, hang_init, balloon, babble;
    uint8_t lost[MAX_GPUS], hang[MAX_GPUS], hang_reads[MAX_GPUS], denied[MAX_GPUS], gone[MAX_GPUS], other[MAX_GPUS];
    uint32_t running[MAX_GPUS], pids[MAX_GPUS][MAX_PROCESSES], clients[MAX_GPUS], client_pids[MAX_GPUS][MAX_PROCESSES];
    int fail[MAX_GPUS], fabric[MAX_GPUS];
    uint32_t told[MAX_GPUS], percents[MAX_GPUS][MAX_PROCESSES];
    uint8_t mig[MAX_GPUS], divided[MAX_GPUS][MAX_INSTANCES];
    double activity[MAX_GPUS][MAX_INSTANCES];
    double frozen;
} control_t;
static control_t now_control = { .count = 8, .frozen = -1 };
static struct { int gpu, code; } xid[MAX_XIDS];
static volatile int xids;
static pthread_mutex_t control_lock = PTHREAD_MUTEX_INITIALIZER;
static pthread_once_t started = PTHREAD_ONCE_INIT;
static double checked_at = -1, started_at, counters_from;
static struct timespec control_mtime;
static off_t control_size = -1;

/* ---- time and the control file --------------------------------------------------------------- */

static double monotonic(void) {
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return t.tv_sec + t.tv_nsec * 1e-9;
}

/* At the first call: not every compiler knows constructors. */
static void start(void) {
    started_at = monotonic();
    for (int i = 0; i < MAX_GPUS; i++) {
        gpus[i].index = i;
        for (int n = 0; n < MAX_INSTANCES; n++) instances[i][n] = (gpu_t){ i, n };
    }
}

/* Seconds on which every value depends. */
static double phase(void) {
    return now_control.frozen >= 0 ? now_control.frozen : monotonic() - started_at;
}

static void parse(FILE *file) {
    char line[256], word[32];
    int found = 0;
    control_t next = { .count = 8, .frozen = -1 };
    while (fgets(line, sizeof line, file)) {
        double number = 0, percent = 0;
        int code = 0, fields = sscanf(line, "%31s %lf %d %lf", word, &number, &code, &percent);
        int gpu = (int)number & (MAX_GPUS - 1);
        if (fields < 1) continue;
        if (!strcmp(word, "lost")) next.lost[gpu] = 1;
        else if (!strcmp(word, "hang")) next.hang[gpu] = 1;
        else if (!strcmp(word, "hang-reads")) next.hang_reads[gpu] = 1;
        else if (!strcmp(word, "hang-init")) next.hang_init = 1;
        else if (!strcmp(word, "gone")) next.gone[gpu] = 1;
        else if (!strcmp(word, "board")) next.other[gpu] = (uint8_t)code;
        else if (!strcmp(word, "balloon")) next.balloon = (int)number;
        else if (!strcmp(word, "babble")) next.babble = 1;
        else if (!strcmp(word, "denied")) next.denied[gpu] = 1;
        else if (!strcmp(word, "fail")) next.fail[gpu] = code;
        else if (!strcmp(word, "fabric")) next.fabric[gpu] = code;
        else if (!strcmp(word, "segv")) next.segv = 1;
        else if (!strcmp(word, "unloaded")) next.unloaded = 1;
        else if (!strcmp(word, "mismatch")) next.mismatch = 1;
        else if (!strcmp(word, "count")) next.count = number < 0 ? 0 : number > MAX_GPUS ? MAX_GPUS : (int)number;
        else if (!strcmp(word, "freeze")) next.frozen = number;
        else if (!strcmp(word, "reset-counters")) next.resets++;
        else if (!strcmp(word, "process") && next.running[gpu] < MAX_PROCESSES) next.pids[gpu][next.running[gpu]++] = (uint32_t)code;
        else if (!strcmp(word, "client") && next.clients[gpu] < MAX_PROCESSES) next.client_pids[gpu][next.clients[gpu]++] = (uint32_t)code;
        else if (!strcmp(word, "sm") && next.told[gpu] < MAX_PROCESSES) next.percents[gpu][next.told[gpu]++] = (uint32_t)code;
        else if (!strcmp(word, "mig")) {
            int id = code & (MAX_INSTANCES - 1);
            next.mig[gpu] = next.divided[gpu][id] = 1;
            next.activity[gpu][id] = fields > 3 ? percent : -1;
        }
        else if (!strcmp(word, "xid") && found < MAX_XIDS) {
            xid[found].gpu = gpu;
            xid[found++].code = code;
        }
    }
    int again = next.resets > now_control.resets;
    now_control = next;
    xids = found;
    if (again) counters_from = phase();
}

static void look(void) {
    pthread_once(&started, start);
    double t = monotonic();
    if (checked_at >= 0 && t - checked_at < 0.1) return;
    if (pthread_mutex_trylock(&control_lock)) return;
    const char *path = getenv("COLDPLATE_FAKE_NVML");
    struct stat about;
    checked_at = t;
    if (path && !stat(path, &about) &&
        (about.st_mtim.tv_sec != control_mtime.tv_sec || about.st_mtim.tv_nsec != control_mtime.tv_nsec ||
         about.st_size != control_size)) {
        FILE *file = fopen(path, "r");
        if (file) {
            control_mtime = about.st_mtim;
            control_size = about.st_size;
            parse(file);
            fclose(file);
        }
    }
    pthread_mutex_unlock(&control_lock);
}

static int node(void) {
    look();
    if (now_control.unloaded) return UNLOADED;
    if (now_control.mismatch) return MISMATCH;
    return OK;
}

/* Whoever reads the pipe gets half a line, bytes of no alphabet, and something that looks nearly right. */
static void babble_into(int fd) {
    static const char garbage[] = "{\"half\": [1, 2\n\xff\xfe\x80\n[[[[[[[[[[[[[[[[\n{\"kind\": \"sample\", \"lane\": 1e999}\n";
    struct stat about;
    int flags = fcntl(fd, F_GETFL);
    if (fd == STDERR_FILENO || flags < 0 || (flags & O_ACCMODE) == O_RDONLY || fstat(fd, &about) || !S_ISFIFO(about.st_mode)) return;
    if (write(fd, garbage, sizeof garbage - 1) < 0) return;
}

/* What a library gone mad does to its process. */
static void go_mad(void) {
    static char *volatile held;
    if (now_control.balloon) {
        size_t size = (size_t)now_control.balloon << 20;
        held = malloc(size);
        if (held) memset(held, 1, size);
    }
    for (int fd = 1; now_control.babble && fd < 64; fd++) babble_into(fd);
}

static int on(const gpu_t *gpu, int is_read) {
    int code = node();
    if (code) return code;
    int whole = gpu >= gpus && gpu < gpus + MAX_GPUS, part = gpu >= instances[0] && gpu < instances[MAX_GPUS];
    if (!whole && !part) return INVALID;
    if (part && !now_control.divided[gpu->index][gpu->instance]) return NOT_FOUND;
    if (now_control.segv) raise(SIGSEGV);
    go_mad();
    while (now_control.hang[gpu->index] || (is_read && now_control.hang_reads[gpu->index])) {
        usleep(20000);
        look();
    }
    if ((code = node())) return code;
    if (gpu->index >= now_control.count || now_control.gone[gpu->index] || now_control.lost[gpu->index]) return LOST;
    if (now_control.denied[gpu->index]) return DENIED;
    if (now_control.fail[gpu->index]) return now_control.fail[gpu->index];
    return OK;
}
#define ON(gpu) do { int code_ = on(gpu, 1); if (code_) return code_; } while (0)
#define WHO(gpu) do { int code_ = on(gpu, 0); if (code_) return code_; } while (0)
#define NODE() do { int code_ = node(); if (code_) return code_; } while (0)

/* ---- the machine: everything is a function of time -------------------------------------------- */

/* Load between 0 and 1 with a period of 20 s, each GPU at its own point of it. */
static double load_of(int gpu) { return 0.5 + 0.45 * sin(phase() * 0.31415926 + gpu * 0.7); }
/* Its integral since the counters began: always growing. */
static double work_of(int gpu) {
    double t = phase(), from = counters_from, w = 0.31415926, a = gpu * 0.7;
    return 0.5 * (t - from) - 0.45 / w * (cos(w * t + a) - cos(w * from + a));
}
static double since(void) { return phase() - counters_from; }
static uint32_t milliwatts(int gpu) { return (uint32_t)(90000 + 600000 * load_of(gpu)); }
static uint64_t millijoules(int gpu) { return (uint64_t)(90000 * since() + 600000 * work_of(gpu)) + (counters_from > 0 ? 0 : 5000000000ull); }
static uint32_t celsius(int gpu) { return (uint32_t)(32 + 40 * load_of(gpu) + gpu % 3); }
static uint32_t megahertz(int gpu) { return (uint32_t)(1980 - 240 * load_of(gpu)); }
static const uint64_t memory_total = 85520809984ull, memory_reserved = 551550976ull;
static uint64_t memory_used(int gpu) { return ((uint64_t)((8 + 60 * load_of(gpu)) * 512)) << 21; }

static void put32(field_t *f, uint32_t v) { f->type = 1; f->value.u32 = v; }
static void put64(field_t *f, uint64_t v) { f->type = 3; f->value.u64 = v; }

static void read_field(int gpu, field_t *f) {
    int all = f->scope == 0xFFFFFFFF;
    double links = all ? LINKS : 1, seconds = since(), work = work_of(gpu);
    if ((f->field >= 138 && f->field <= 141) || (f->field >= 161 && f->field <= 166))
        if (!all && f->scope >= LINKS) { f->code = INVALID; return; }
    f->code = OK;
    switch (f->field) {
    case 3: put64(f, 2); break;
    case 4: case 6: put64(f, 0); break;
    case 5: put64(f, 17); break;
    case 38: case 45: case 52: case 59: case 160: put64(f, 0); break;
    case 74: put64(f, (uint64_t)(work * 0.2e9)); break;
    case 75: put64(f, (uint64_t)(seconds * 0.001e9)); break;
    case 76: case 77: case 79: put64(f, 0); break;
    case 78: put64(f, (uint64_t)(seconds * 0.05e9)); break;
    case 82: put32(f, celsius(gpu) + 8); break;
    case 83: put64(f, millijoules(gpu)); break;
    case 91: put32(f, LINKS); break;
    case 94: put32(f, gpu); break;
    case 138: put64(f, (uint64_t)(work * 2e6 * links)); break;
    case 139: put64(f, (uint64_t)(work * 2.1e6 * links)); break;
    case 140: put64(f, (uint64_t)(work * 2.2e6 * links)); break;
    case 141: put64(f, (uint64_t)(work * 2.3e6 * links)); break;
    case 142: case 143: case 144: case 145: put32(f, 0); break;
    case 161: case 162: case 163: put64(f, f->scope == 3 ? 1 : 0); break;
    case 90: case 164: put32(f, 26562); break;
    case 165: put32(f, 1); break;
    case 166: put32(f, 6); break;
    case 169: case 173: case 174: case 175: case 176: case 177: case 178: case 179: case 180: case 181: case 182: case 183:
        put32(f, f->field == 173 ? 4 : 0); break;
    case 185: case 186: if (f->scope == 0) put32(f, milliwatts(gpu) + (f->field == 186 ? 1500 : 0)); else f->code = UNSUPPORTED; break;
    case 187: put32(f, 200000); break;
    case 188: case 189: case 190: case 192: put32(f, 700000); break;
    case 197: put64(f, (uint64_t)(work * 3e9)); break;
    case 198: put64(f, (uint64_t)(work * 5e9)); break;
    case 230: put32(f, 0); break;
    case 269: case 270: put64(f, (uint64_t)(seconds * 0.0005e9)); break;
    case 271: put64(f, 0); break;
    default: f->code = UNSUPPORTED;
    }
}

/* ---- system ------------------------------------------------------------------------------------ */

static int text(char *out, uint32_t size, const char *value) {
    if (strlen(value) >= size) return 7;
    strcpy(out, value);
    return OK;
}

static int init(void) {
    NODE();
    while (now_control.hang_init) {
        usleep(20000);
        look();
    }
    return OK;
}
API int nvmlInitWithFlags(uint32_t flags) { (void)flags; return init(); }
API int nvmlInit_v2(void) { return init(); }
API int nvmlShutdown(void) { return OK; }
API const char *nvmlErrorString(int code) { return code == OK ? "Success" : "An error of the stand-in library"; }
API int nvmlSystemGetDriverVersion(char *out, uint32_t size) { NODE(); return text(out, size, "570.124.06"); }
API int nvmlSystemGetNVMLVersion(char *out, uint32_t size) { NODE(); return text(out, size, "12.570.124.06"); }
API int nvmlSystemGetCudaDriverVersion(int *out) { NODE(); *out = 12080; return OK; }
API int nvmlSystemGetCudaDriverVersion_v2(int *out) { return nvmlSystemGetCudaDriverVersion(out); }
/* The place of the GPU that the driver counts as number `index`; -1 if it counts no such GPU. */
static int place_of(uint32_t index) {
    for (int place = 0; place < now_control.count; place++)
        if (!now_control.gone[place] && index-- == 0) return place;
    return -1;
}
static uint32_t index_of(int place) {
    uint32_t index = 0;
    for (int each = 0; each < place; each++) index += !now_control.gone[each];
    return index;
}
API int nvmlDeviceGetCount_v2(uint32_t *out) { NODE(); *out = index_of(now_control.count); return OK; }

#include "fake_calls.h"
