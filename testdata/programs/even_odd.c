/*
 * Mutual recursion that stays recursion at every optimisation level.
 *
 * Calls: main -> is_even(20) -> is_odd(19) -> is_even(18) ... -> is_even(0): is_even 11, is_odd 10;
 * then main -> is_even(7) ... -> is_odd(0): is_even 4, is_odd 4. In all is_even 15, is_odd 14.
 */
#include "called.h"
#include <stdio.h>

CALLED static int is_odd(unsigned n);

CALLED static int is_even(unsigned n)
{
    if (n == 0)
        return 1;
    int answer = is_odd(n - 1);
    KEEP(answer);
    return answer;
}

CALLED static int is_odd(unsigned n)
{
    if (n == 0)
        return 0;
    int answer = is_even(n - 1);
    KEEP(answer);
    return answer;
}

int main(void)
{
    int twenty = is_even(20);
    int seven = is_even(7);
    printf("20 even: %d, 7 even: %d\n", twenty, seven);
    return 0;
}
