/*
 * A SIGSEGV handler that repairs the fault: it makes the page writable and returns, and the faulting
 * instruction runs again.
 *
 * Calls: main -> fill, once, which faults on each of 3 pages; on_fault 3 -> open_page 3;
 * main -> check, once.
 */
#include "called.h"
#include <signal.h>
#include <stdint.h>
#include <stdio.h>
#include <sys/mman.h>

enum { PAGE = 4096, PAGES = 3 };

static volatile char *area;

CALLED static void open_page(uintptr_t address)
{
    mprotect((void *)(address & ~(uintptr_t)(PAGE - 1)), PAGE, PROT_READ | PROT_WRITE);
    STAY();
}

CALLED static void on_fault(int number, siginfo_t *info, void *context)
{
    (void)number, (void)context;
    open_page((uintptr_t)info->si_addr);
    STAY();
}

CALLED static void fill(void)
{
    for (int i = 0; i < PAGES; i++)
        area[i * PAGE + 5] = (char)(i + 1);
}

CALLED static int check(void)
{
    int sum = 0;
    for (int i = 0; i < PAGES; i++)
        sum += area[i * PAGE + 5];
    return sum;
}

int main(void)
{
    struct sigaction action = {.sa_sigaction = on_fault, .sa_flags = SA_SIGINFO};
    sigaction(SIGSEGV, &action, NULL);
    area = mmap(NULL, PAGES * PAGE, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    fill();
    printf("sum = %d\n", check());
    return 0;
}
