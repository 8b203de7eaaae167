/*
 * Code that is made and changed at run time, in one page: a decoder that knows only the files loses
 * it, or worse, decodes the later call with the earlier code.
 *
 * Calls: main -> write_code, 2 times; main -> call_code, 4 times -> the code in the page: first
 * `mov eax, 42; ret`, called twice, then a loop that counts to 7, called twice, at the same address.
 */
#include "called.h"
#include <stdio.h>
#include <string.h>
#include <sys/mman.h>

static const unsigned char constant[] = {0xb8, 42, 0, 0, 0, 0xc3};
/* xor eax, eax; 1: inc eax; cmp eax, 7; jne 1b; ret */
static const unsigned char counter[] = {0x31, 0xc0, 0xff, 0xc0, 0x83, 0xf8, 0x07, 0x75, 0xf9, 0xc3};

CALLED static void write_code(void *page, const unsigned char *code, size_t size)
{
    memcpy(page, code, size);
    STAY();
}

CALLED static int call_code(void *page)
{
    int value = ((int (*)(void))page)();
    KEEP(value);
    return value;
}

int main(void)
{
    void *page = mmap(NULL, 4096, PROT_READ | PROT_WRITE | PROT_EXEC, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (page == MAP_FAILED)
        return 2;
    write_code(page, constant, sizeof constant);
    int first = call_code(page) + call_code(page);
    write_code(page, counter, sizeof counter);
    int second = call_code(page) + call_code(page);
    printf("%d %d\n", first, second);
    return 0;
}
