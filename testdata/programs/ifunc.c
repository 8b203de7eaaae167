/*
 * An indirect function (IFUNC): its implementation is chosen by a resolver when the program starts.
 *
 * Calls: resolve_scale before main (as often as the linker placed relocations for it); main ->
 * use_scale, 4 times -> scale_by_ten; scale_by_two never.
 */
#include "called.h"
#include <stdio.h>

CALLED static int scale_by_two(int value) { return value * 2; }
CALLED static int scale_by_ten(int value) { return value * 10; }

static int (*resolve_scale(void))(int)
{
    __builtin_cpu_init();
    /* Always true on x86-64, but not to the compiler. */
    return __builtin_cpu_supports("sse2") ? scale_by_ten : scale_by_two;
}

int scale(int value) __attribute__((ifunc("resolve_scale")));

CALLED static int use_scale(int value)
{
    int scaled = scale(value);
    KEEP(scaled);
    return scaled + 1;
}

int main(void)
{
    int sum = 0;
    for (int i = 0; i < 4; i++)
        sum += use_scale(i);
    printf("sum = %d\n", sum);
    return 0;
}
