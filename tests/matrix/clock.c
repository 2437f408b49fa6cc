/* Preloaded into a server, it adds an offset to the wall clock: nanoseconds as an int64 in the file $CLOCK_OFFSETS/<pid>.
   Monotonic clocks stay as they are. */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <fcntl.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <sys/time.h>
#include <time.h>
#include <unistd.h>

static volatile int64_t *offset_ns;
static int (*real_clock_gettime)(clockid_t, struct timespec *);

__attribute__((constructor)) static void begin(void) {
    real_clock_gettime = (int (*)(clockid_t, struct timespec *))dlsym(RTLD_NEXT, "clock_gettime");
    const char *directory = getenv("CLOCK_OFFSETS");
    char path[4096];
    if (directory == NULL) {
        return;
    }
    snprintf(path, sizeof path, "%s/%d", directory, getpid());
    int file = open(path, O_RDWR | O_CREAT, 0600);
    if (file < 0) {
        return;
    }
    if (ftruncate(file, sizeof(int64_t)) == 0) {
        void *mapped = mmap(NULL, sizeof(int64_t), PROT_READ, MAP_SHARED, file, 0);
        offset_ns = mapped == MAP_FAILED ? NULL : mapped;
    }
    close(file);
}

int clock_gettime(clockid_t clock, struct timespec *now) {
    if (real_clock_gettime == NULL) {
        begin();
    }
    int result = real_clock_gettime(clock, now);
    if (result == 0 && offset_ns != NULL && (clock == CLOCK_REALTIME || clock == CLOCK_REALTIME_COARSE)) {
        now->tv_sec += *offset_ns / 1000000000;
    }
    return result;
}

int gettimeofday(struct timeval *restrict now, void *restrict zone) {
    struct timespec precise;
    (void)zone;
    int result = clock_gettime(CLOCK_REALTIME, &precise);
    now->tv_sec = precise.tv_sec;
    now->tv_usec = precise.tv_nsec / 1000;
    return result;
}

time_t time(time_t *now) {
    struct timespec precise;
    clock_gettime(CLOCK_REALTIME, &precise);
    if (now != NULL) {
        *now = precise.tv_sec;
    }
    return precise.tv_sec;
}
