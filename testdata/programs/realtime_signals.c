/* Real-time signals: queued twice, handled in order, and the last one kills.
 *
 * main            1
 *   send          3   sigqueue to itself: two that are handled, one that is not
 *   on_realtime   2   handler of SIGRTMIN+1
 */
#define _GNU_SOURCE
#include "called.h"

#include <signal.h>
#include <stdio.h>
#include <unistd.h>

static volatile int sum;

CALLED static void on_realtime(int number, siginfo_t *info, void *context)
{
    (void)context;
    sum = sum * 10 + info->si_value.sival_int;
    KEEP(number);
}

CALLED static void send(int number, int value)
{
    union sigval with = { .sival_int = value };
    int failed = sigqueue(getpid(), number, with);
    KEEP(failed);
}

int main(void)
{
    struct sigaction action = { .sa_sigaction = on_realtime, .sa_flags = SA_SIGINFO };
    sigaction(SIGRTMIN + 1, &action, 0);
    send(SIGRTMIN + 1, 4);
    send(SIGRTMIN + 1, 2);
    printf("sum %d\n", sum);
    fflush(stdout);
    send(SIGRTMIN + 2, 0);
    return 0;
}
