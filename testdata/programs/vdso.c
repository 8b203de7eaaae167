/*
 * Calls into the vDSO.
 *
 * Calls: main -> monotonic, 3 times -> clock_gettime; main -> wall, 2 times -> gettimeofday, time.
 */
#include "called.h"
#include <stdio.h>
#include <sys/time.h>
#include <time.h>

CALLED static long long monotonic(void)
{
    struct timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    return now.tv_sec * 1000000000LL + now.tv_nsec;
}

CALLED static int wall(void)
{
    struct timeval now;
    gettimeofday(&now, NULL);
    long difference = (long)(time(NULL) - now.tv_sec);
    /* time() reads a coarser clock, so it may still be in the second before. */
    return difference >= -1 && difference <= 60;
}

int main(void)
{
    long long first = monotonic();
    long long second = monotonic();
    long long third = monotonic();
    int agrees = wall();
    agrees += wall();
    printf("ordered %d, agrees %d\n", first <= second && second <= third, agrees);
    return 0;
}
