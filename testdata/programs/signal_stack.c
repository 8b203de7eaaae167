/*
 * A handler on its own stack: once by raise, once for a real stack overflow that it leaves by
 * siglongjmp.
 *
 * Calls: main -> use_stack, once; main -> work, once -> raise -> (signal) on_signal, once;
 * main -> survive, once -> overflow, which calls itself until the stack ends (how often depends on
 * the machine) -> (signal) on_overflow, once, jumps back into survive.
 */
#include "called.h"
#include <setjmp.h>
#include <signal.h>
#include <stdint.h>
#include <stdio.h>
#include <sys/resource.h>

static char other_stack[64 * 1024];
static sigjmp_buf back;
static volatile int on_other_stack;

CALLED static int here(void)
{
    volatile char local = 0;
    uintptr_t at = (uintptr_t)&local;
    return at >= (uintptr_t)other_stack && at < (uintptr_t)other_stack + sizeof other_stack;
}

CALLED static void on_signal(int number)
{
    (void)number;
    on_other_stack += here();
}

CALLED static void on_overflow(int number)
{
    on_other_stack += here();
    siglongjmp(back, number);
}

CALLED static int overflow(int depth)
{
    if (depth == 1000000)
        return 0;
    volatile char frame[32 * 1024];
    frame[0] = (char)depth;
    int below = overflow(depth + 1);
    KEEP(below);
    return below + frame[0];
}

CALLED static void use_stack(void)
{
    stack_t stack = {.ss_sp = other_stack, .ss_size = sizeof other_stack};
    sigaltstack(&stack, NULL);
    struct sigaction action = {.sa_handler = on_signal, .sa_flags = SA_ONSTACK};
    sigaction(SIGUSR1, &action, NULL);
    action.sa_handler = on_overflow;
    sigaction(SIGSEGV, &action, NULL);
    /* A smaller limit holds for the growth of this very stack: the overflow comes soon. */
    struct rlimit limit = {.rlim_cur = 512 * 1024, .rlim_max = RLIM_INFINITY};
    getrlimit(RLIMIT_STACK, &limit);
    limit.rlim_cur = 512 * 1024;
    setrlimit(RLIMIT_STACK, &limit);
    STAY();
}

CALLED static void work(void)
{
    raise(SIGUSR1);
    STAY();
}

CALLED static int survive(void)
{
    int number = sigsetjmp(back, 1);
    if (number == 0)
        return overflow(0);
    return number == SIGSEGV;
}

int main(void)
{
    use_stack();
    work();
    int survived = survive();
    printf("on the other stack %d times, survived %d\n", on_other_stack, survived);
    return 0;
}
