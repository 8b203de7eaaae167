/*
 * Functions that the compiler splits at -O2: the unlikely part lies far away, as `check.cold`. A jump
 * there and back is no call.
 *
 * Calls: main -> check, 20 times, 4 of them by the cold path -> complain, 4 times, check goes on.
 */
#include "called.h"
#include <stdio.h>

static int complaints;

__attribute__((cold)) CALLED static int complain(int value)
{
    complaints++;
    return -value;
}

CALLED static int check(int value)
{
    int answer = value * 2;
    if (value % 5 == 0) {
        answer = complain(value);
        KEEP(answer);
        answer += 1;
    }
    KEEP(answer);
    return answer + 3;
}

int main(void)
{
    int sum = 0;
    for (int i = 1; i <= 20; i++)
        sum += check(i);
    printf("sum %d, complaints %d\n", sum, complaints);
    return 0;
}
