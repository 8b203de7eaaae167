/*
 * longjmp out of several frames, three ways.
 *
 * Calls: main -> attempt, 3 times -> level_one -> level_two -> level_three, which jumps back into
 * attempt. attempt then calls after_jump, 3 times.
 * main -> outer, once -> inner, once, both with a jump buffer: inner -> leave(1) lands in inner,
 * inner -> leave(0) lands in outer: leave 2.
 * main -> with_mask, once -> leave_with_mask, once, by sigsetjmp and siglongjmp.
 */
#include "called.h"
#include <setjmp.h>
#include <stdio.h>

static jmp_buf back;
static jmp_buf buffers[2];
static sigjmp_buf masked;

CALLED static void level_three(int value)
{
    longjmp(back, value);
}

CALLED static void level_two(int value)
{
    level_three(value + 1);
    STAY();
}

CALLED static void level_one(int value)
{
    level_two(value + 1);
    STAY();
}

CALLED static int after_jump(int value) { return value * 2; }

CALLED static int attempt(int value)
{
    int landed = setjmp(back);
    if (landed == 0)
        level_one(value);
    int answer = after_jump(landed);
    KEEP(answer);
    return answer;
}

CALLED static void leave(int which)
{
    longjmp(buffers[which], which + 1);
}

CALLED static void inner(void)
{
    if (setjmp(buffers[1]) == 0)
        leave(1);
    leave(0);
    STAY();
}

CALLED static int outer(void)
{
    int landed = setjmp(buffers[0]);
    if (landed == 0)
        inner();
    return landed;
}

CALLED static void leave_with_mask(void)
{
    siglongjmp(masked, 4);
}

CALLED static int with_mask(void)
{
    int landed = sigsetjmp(masked, 1);
    if (landed == 0)
        leave_with_mask();
    return landed;
}

int main(void)
{
    int first = attempt(10);
    int second = attempt(20);
    int third = attempt(30);
    int left = outer();
    int with = with_mask();
    printf("%d %d %d %d %d\n", first, second, third, left, with);
    return 0;
}
