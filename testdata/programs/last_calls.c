/*
 * Calls that never return, as the last instruction of a function: the return address is the first
 * instruction of the next function.
 *
 * Calls: main -> guarded, 3 times -> last_call -> no_return, which jumps back into guarded. main calls
 * next_function, 3 times, which lies right behind last_call and makes a tail call to shared; and
 * no_return calls next_function too, 3 times: 6 calls of each.
 */
#include "called.h"
#include <setjmp.h>
#include <stdio.h>

jmp_buf back;
CALLED int shared(int n) { return n + 1; }
int next_function(int n);
void last_call(int n);

CALLED __attribute__((noreturn)) void no_return(int n)
{
    longjmp(back, next_function(n));
}

__asm__(".text\n"
        ".p2align 4\n"
        ".type last_call, @function\n"
        "last_call:\n"
        "  sub $8, %rsp\n"
        "  call no_return\n"
        ".size last_call, .-last_call\n"
        ".type next_function, @function\n"
        "next_function:\n"
        "  add $10, %edi\n"
        "  jmp shared\n"
        ".size next_function, .-next_function\n");

CALLED static int guarded(int n)
{
    int landed = setjmp(back);
    if (landed == 0)
        last_call(n);
    return landed;
}

int main(void)
{
    int sum = 0;
    for (int i = 1; i <= 3; i++) {
        int left = guarded(i);
        sum += left + next_function(i);
    }
    printf("sum = %d\n", sum);
    return 0;
}
