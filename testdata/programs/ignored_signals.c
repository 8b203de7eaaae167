/*
 * Signals that call nobody: ignored, ignored by default, and blocked until later.
 *
 * Calls: main -> send, 4 times (SIGUSR1 ignored, SIGCHLD ignored by default, SIGUSR2 blocked, twice
 * and so delivered once); on_late, once, when main unblocks it; main -> finish, once.
 */
#include "called.h"
#include <signal.h>
#include <stdio.h>

static volatile int late;

CALLED static void on_late(int number) { late += number; }

CALLED static void send(int number)
{
    raise(number);
    STAY();
}

CALLED static int finish(int before) { return before == 0 && late == SIGUSR2; }

int main(void)
{
    sigset_t blocked;
    sigemptyset(&blocked);
    sigaddset(&blocked, SIGUSR2);
    sigprocmask(SIG_BLOCK, &blocked, NULL);
    signal(SIGUSR1, SIG_IGN);
    signal(SIGUSR2, on_late);
    send(SIGUSR1);
    send(SIGCHLD);
    send(SIGUSR2);
    send(SIGUSR2);
    int before = late;
    sigprocmask(SIG_UNBLOCK, &blocked, NULL);
    printf("ok %d\n", finish(before));
    return 0;
}
