/*
 * Kills itself with SIGKILL.
 *
 * Calls: main -> outer -> inner, once each -> kill.
 */
#include "called.h"
#include <signal.h>
#include <unistd.h>

CALLED static void inner(void)
{
    kill(getpid(), SIGKILL);
    STAY();
}

CALLED static void outer(void)
{
    inner();
    STAY();
}

int main(void)
{
    if (write(1, "before\n", 7) != 7)
        return 2;
    outer();
    return 0;
}
