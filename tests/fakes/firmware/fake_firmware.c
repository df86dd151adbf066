/* Preloaded into a program (LD_PRELOAD), it makes reads of chosen files hang or fail, as they do when the firmware behind sysfs
 * does, and steps the clock that Python reads (clock_gettime(2)).
 *
 * The environment variable COLDPLATE_FAKE_FIRMWARE names a file with a command a line:
 *
 *   hang WORD          pread(2) of a file whose path has the word in it does not return while the line is there
 *   fail ERRNO WORD    it ends with this error number
 *   clock SECONDS      the wall clock is ahead by so much
 *
 * It works on files that are open already, which no pipe in the place of a file does. The commands are looked at no more than
 * ten times a second.
 */
#define _GNU_SOURCE
#include <errno.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

enum { MAX_WORDS = 16, MAX_WORD = 256 };

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static char words[MAX_WORDS][MAX_WORD];
static int errors[MAX_WORDS]; /* 0: it hangs */
static int count;
static time_t ahead;
static double looked_at = -1;

static void look(void) {
    struct timespec t;
    syscall(SYS_clock_gettime, CLOCK_MONOTONIC, &t);
    double now = t.tv_sec + t.tv_nsec * 1e-9;
    if (looked_at >= 0 && now - looked_at < 0.1) return;
    looked_at = now;
    char line[MAX_WORD + 32];
    long number;
    count = 0;
    ahead = 0;
    const char *path = getenv("COLDPLATE_FAKE_FIRMWARE");
    FILE *file = path ? fopen(path, "re") : NULL;
    if (!file) return;
    while (count < MAX_WORDS && fgets(line, sizeof line, file)) {
        if (sscanf(line, "hang %255s", words[count]) == 1) errors[count++] = 0;
        else if (sscanf(line, "fail %d %255s", &errors[count], words[count]) == 2) count++;
        else if (sscanf(line, "clock %ld", &number) == 1) ahead = number;
    }
    fclose(file);
}

/* -1: nothing is to happen to reads of this file, 0: they hang, otherwise they end with this error. */
static int harm(int fd) {
    char link[64], path[4096];
    int found = -1;
    pthread_mutex_lock(&lock);
    look();
    if (count) {
        snprintf(link, sizeof link, "/proc/self/fd/%d", fd);
        ssize_t size = readlink(link, path, sizeof path - 1);
        path[size < 0 ? 0 : size] = 0;
        for (int i = 0; i < count && found < 0; i++)
            if (strstr(path, words[i])) found = errors[i];
    }
    pthread_mutex_unlock(&lock);
    return found;
}

ssize_t pread64(int fd, void *buffer, size_t size, off64_t offset) {
    int error;
    while ((error = harm(fd)) == 0) usleep(20000);
    if (error > 0) {
        errno = error;
        return -1;
    }
    return syscall(SYS_pread64, fd, buffer, size, offset);
}

ssize_t pread(int fd, void *buffer, size_t size, off_t offset) { return pread64(fd, buffer, size, offset); }

static time_t ahead_now(void) {
    pthread_mutex_lock(&lock);
    look();
    time_t found = ahead;
    pthread_mutex_unlock(&lock);
    return found;
}

int clock_gettime(clockid_t clock, struct timespec *t) {
    int result = syscall(SYS_clock_gettime, clock, t);
    if (result == 0 && clock == CLOCK_REALTIME) t->tv_sec += ahead_now();
    return result;
}
