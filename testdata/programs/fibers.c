/*
 * Fibers: stacks that a few instructions switch between, as boost.context and others do; two of them
 * wait for each other at the same place.
 *
 * Calls: main -> step_main, 3 times. Fiber "left": left -> work, 3 times; "right": right -> work, 3
 * times. Each work calls compute, once, and pause_fiber, once, in which it goes to the next fiber:
 * main -> left -> right -> main. switch_stack is called 9 times by pause_fiber, from one call site.
 */
#include "called.h"
#include <stdint.h>
#include <stdio.h>

/* Stores where this stack stands, goes to where the other one stands, and jumps to its caller. */
void switch_stack(void **from, void *to);
__asm__(".text\n"
        ".globl switch_stack\n"
        ".type switch_stack, @function\n"
        "switch_stack:\n"
        "  lea -0x30(%rsp), %rsp\n"
        "  mov %r12, 0x00(%rsp)\n"
        "  mov %r13, 0x08(%rsp)\n"
        "  mov %r14, 0x10(%rsp)\n"
        "  mov %r15, 0x18(%rsp)\n"
        "  mov %rbx, 0x20(%rsp)\n"
        "  mov %rbp, 0x28(%rsp)\n"
        "  mov %rsp, (%rdi)\n"
        "  mov %rsi, %rsp\n"
        "  mov 0x30(%rsp), %r8\n"
        "  mov 0x00(%rsp), %r12\n"
        "  mov 0x08(%rsp), %r13\n"
        "  mov 0x10(%rsp), %r14\n"
        "  mov 0x18(%rsp), %r15\n"
        "  mov 0x20(%rsp), %rbx\n"
        "  mov 0x28(%rsp), %rbp\n"
        "  lea 0x38(%rsp), %rsp\n"
        "  jmp *%r8\n"
        ".size switch_stack, .-switch_stack\n");

enum { FIBERS = 3, ROUNDS = 3 };
static void *standing[FIBERS];
static int running;
static uint64_t stacks[FIBERS][2048] __attribute__((aligned(16)));

CALLED static void pause_fiber(void)
{
    int from = running;
    running = (running + 1) % FIBERS;
    switch_stack(&standing[from], standing[running]);
    STAY();
}

CALLED static int compute(int n) { return n * n; }

CALLED static int work(int n)
{
    int value = compute(n);
    pause_fiber();
    KEEP(value);
    return value;
}

static int sums[FIBERS];

static void left(void)
{
    for (int n = 1;; n++)
        sums[1] += work(n);
}

static void right(void)
{
    for (int n = 1;; n++)
        sums[2] += work(10 * n);
}

CALLED static void step_main(void)
{
    pause_fiber();
    STAY();
}

/* A new stack stands in front of its function, which never returns. */
static void *new_stack(uint64_t *stack, void (*function)(void))
{
    uint64_t *top = stack + 2048 - 2;
    *top = 0;
    *--top = (uint64_t)function;
    return top - 6;
}

int main(void)
{
    standing[1] = new_stack(stacks[1], left);
    standing[2] = new_stack(stacks[2], right);
    for (int i = 0; i < ROUNDS; i++)
        step_main();
    printf("%d %d\n", sums[1], sums[2]);
    return 0;
}
