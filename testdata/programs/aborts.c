/*
 * Ends by abort().
 *
 * Calls: main -> outer -> inner, once each -> abort.
 */
#include "called.h"
#include <stdlib.h>
#include <unistd.h>

CALLED static void inner(void)
{
    abort();
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
