/*
 * Hardware transactions (RTM), where the CPU has them. Whether one commits depends on the machine (a
 * single step always aborts it), so both ways call the same functions.
 *
 * Calls: main -> aborts, once: aborts on purpose, or without RTM goes there at once -> fallback, once;
 * main -> commits, 3 times -> finish, 3 times, whether the transaction committed or not.
 */
#include "called.h"
#include <cpuid.h>
#include <immintrin.h>
#include <stdio.h>

static int has_rtm;
static volatile int inside;

CALLED static int fallback(int value) { return value + 1; }
CALLED static int finish(int value) { return value + 10; }

__attribute__((target("rtm"))) CALLED static int aborts(void)
{
    if (has_rtm && _xbegin() == _XBEGIN_STARTED) {
        inside = 1;
        _xabort(7);
    }
    /* The write of the aborted transaction must be gone. */
    int answer = fallback(inside);
    KEEP(answer);
    return answer;
}

__attribute__((target("rtm"))) CALLED static int commits(void)
{
    if (has_rtm && _xbegin() == _XBEGIN_STARTED)
        _xend();
    int answer = finish(1);
    KEEP(answer);
    return answer;
}

int main(void)
{
    unsigned a, b, c, d;
    has_rtm = __get_cpuid_count(7, 0, &a, &b, &c, &d) && (b & (1u << 11));
    int sum = aborts();
    for (int i = 0; i < 3; i++)
        sum += commits();
    printf("sum = %d\n", sum);
    return 0;
}
