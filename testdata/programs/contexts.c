/*
 * Two stacks in one thread: makecontext and swapcontext.
 *
 * Calls: main -> produce_here, once before and once after; generator runs on its own stack and calls
 * produce 4 times; between two of them it goes back to main, which calls consume 4 times.
 */
#include "called.h"
#include <stdio.h>
#include <ucontext.h>

static ucontext_t main_context, generator_context;
static char stack[64 * 1024];
static int value;

CALLED static int produce(int n) { return n * n; }

static void generator(void)
{
    for (int i = 1; i <= 4; i++) {
        value = produce(i);
        swapcontext(&generator_context, &main_context);
    }
}

CALLED static int consume(int sum) { return sum + value; }
CALLED static int produce_here(int n) { return n + 1; }

int main(void)
{
    int sum = produce_here(0);
    getcontext(&generator_context);
    generator_context.uc_stack.ss_sp = stack;
    generator_context.uc_stack.ss_size = sizeof stack;
    generator_context.uc_link = &main_context;
    makecontext(&generator_context, generator, 0);
    for (int i = 0; i < 4; i++) {
        swapcontext(&main_context, &generator_context);
        sum = consume(sum);
    }
    sum = produce_here(sum);
    printf("sum = %d\n", sum);
    return 0;
}
