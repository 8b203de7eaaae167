/*
 * A signal during a blocked read: without SA_RESTART it fails with EINTR, with SA_RESTART it goes on
 * and gets the byte that the handler wrote.
 *
 * Calls: main -> install, 2 times; main -> arm, 2 times; main -> receive, 2 times; on_alarm, once;
 * on_alarm_restart, once. The first alarm repeats until main stops it, so that an early one (on a
 * very slow machine) can't block the program for ever.
 */
#include "called.h"
#include <errno.h>
#include <signal.h>
#include <stdio.h>
#include <sys/time.h>
#include <unistd.h>

enum { DELAY_US = 200000 };

static int ends[2];

CALLED static void on_alarm(int number) { (void)number; }

CALLED static void on_alarm_restart(int number)
{
    (void)number;
    if (write(ends[1], "x", 1) != 1)
        _exit(3);
}

CALLED static void install(void (*handler)(int), int flags)
{
    struct sigaction action = {.sa_handler = handler, .sa_flags = flags};
    sigaction(SIGALRM, &action, NULL);
    STAY();
}

CALLED static void arm(int interval_us)
{
    struct itimerval timer = {.it_value = {.tv_usec = DELAY_US}, .it_interval = {.tv_usec = interval_us}};
    setitimer(ITIMER_REAL, &timer, NULL);
    STAY();
}

CALLED static int receive(void)
{
    char byte;
    ssize_t got = read(ends[0], &byte, 1);
    return got == 1 ? byte : -errno;
}

int main(void)
{
    if (pipe(ends) != 0)
        return 2;
    install(on_alarm, 0);
    arm(DELAY_US);
    int first = receive();
    setitimer(ITIMER_REAL, &(struct itimerval){0}, NULL);
    install(on_alarm_restart, SA_RESTART);
    arm(0);
    int second = receive();
    printf("%s, then %c\n", first == -EINTR ? "EINTR" : "no error", second);
    return 0;
}
