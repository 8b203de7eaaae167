/*
 * Calls of C library functions through the PLT, each twice: with lazy binding the first goes through
 * the resolver. The build variants have lazy binding, immediate binding, no PLT and static linking.
 *
 * Calls: main -> ask, 2 times -> atoi, labs, abs, strtol.
 */
#include "called.h"
#include <stdio.h>
#include <stdlib.h>

CALLED static long ask(const char *text)
{
    long sum = atoi(text);
    sum += labs(sum);
    sum += abs((int)sum);
    sum += strtol(text, NULL, 10);
    return sum;
}

int main(void)
{
    long first = ask("-12");
    long second = ask("30");
    printf("%ld %ld\n", first, second);
    return 0;
}
