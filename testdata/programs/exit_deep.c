/*
 * Ends by _exit inside nested calls.
 *
 * Calls: main -> descend(5), which calls itself: 5 calls -> leave, once -> _exit(7).
 */
#include "called.h"
#include <unistd.h>

CALLED static void leave(void)
{
    if (write(1, "leaving\n", 8) != 8)
        _exit(2);
    _exit(7);
}

CALLED static void descend(int n)
{
    if (n == 1)
        leave();
    else
        descend(n - 1);
    STAY();
}

int main(void)
{
    descend(5);
    return 0;
}
