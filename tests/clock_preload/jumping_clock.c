/* A wall clock that jumps: preloaded into a program, every few readings of CLOCK_REALTIME it is a day ahead, a year back, or
 * before 1970. The monotonic clock goes on as it is. Made for tests alone. */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <time.h>

static int (*real)(clockid_t, struct timespec *);
static unsigned long readings;

int clock_gettime(clockid_t clock, struct timespec *time) {
  static const long jumps_s[] = {0, 86400, -31536000, 3600, -2147483647L, 315360000L, -1};
  if (!real) real = (int (*)(clockid_t, struct timespec *))dlsym(RTLD_NEXT, "clock_gettime");
  int result = real(clock, time);
  if (result == 0 && clock == CLOCK_REALTIME) {
    unsigned long reading = __atomic_fetch_add(&readings, 1, __ATOMIC_RELAXED);
    time->tv_sec += jumps_s[reading / 5 % (sizeof jumps_s / sizeof *jumps_s)];
  }
  return result;
}
