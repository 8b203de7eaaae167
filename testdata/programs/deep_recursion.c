/*
 * 10,000 frames deep.
 *
 * Calls: main -> descend(10000), which calls itself: 10,000 calls of descend, then bottom, once.
 */
#include "called.h"
#include <stdio.h>

CALLED static int bottom(void) { return 1; }

CALLED static int descend(int n)
{
    int below = n == 1 ? bottom() : descend(n - 1);
    KEEP(below);
    return below + 1;
}

int main(void)
{
    printf("depth = %d\n", descend(10000));
    return 0;
}
