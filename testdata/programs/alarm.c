/*
 * Asynchronous signals: a one-shot timer that the handler sets again, three times in all. Where the
 * signal lands is not known, only that it is inside main.
 *
 * Calls: main -> spin -> step (as often as it takes), 3 times on_alarm, 3 times arm (main once,
 * on_alarm twice).
 */
#include "called.h"
#include <signal.h>
#include <stdio.h>
#include <sys/time.h>

static volatile int alarms;
static volatile unsigned steps;

CALLED static void arm(void)
{
    struct itimerval once = {.it_value = {.tv_usec = 2000}};
    setitimer(ITIMER_REAL, &once, NULL);
    STAY();
}

CALLED static void on_alarm(int number)
{
    (void)number;
    if (++alarms < 3)
        arm();
    STAY();
}

CALLED static void step(void) { steps++; }

CALLED static void spin(void)
{
    while (alarms < 3)
        step();
}

int main(void)
{
    signal(SIGALRM, on_alarm);
    arm();
    spin();
    printf("alarms = %d\n", alarms);
    return 0;
}
