/*
 * Loops with many conditional branches and few calls.
 *
 * Calls: main -> is_prime, 199 times (2 to 200).
 */
#include "called.h"
#include <stdio.h>

CALLED static int is_prime(unsigned n)
{
    for (unsigned d = 2; d * d <= n; d++)
        if (n % d == 0)
            return 0;
    return 1;
}

int main(void)
{
    int count = 0;
    for (unsigned n = 2; n <= 200; n++)
        count += is_prime(n);
    printf("%d primes\n", count);
    return 0;
}
