/*
 * Two libraries loaded and unloaded one after the other, so that the second may get the addresses of
 * the first, with other code there.
 *
 * Calls: main -> use("libfirst.so"), use("libsecond.so"), use("libfirst.so"): use 3 -> dlopen, dlsym,
 * the library's `compute`, dlclose. compute of the first library calls first_step 3 times a call
 * (6 in all), that of the second calls second_step 5 times; compute 3.
 */
#include "called.h"
#include <dlfcn.h>
#include <stdio.h>

CALLED static int use(const char *name, int argument)
{
    void *library = dlopen(name, RTLD_NOW);
    if (!library) {
        fprintf(stderr, "%s\n", dlerror());
        return -1;
    }
    int (*compute)(int) = (int (*)(int))dlsym(library, "compute");
    int answer = compute(argument);
    dlclose(library);
    return answer;
}

int main(void)
{
    int first = use("libfirst.so", 10);
    int second = use("libsecond.so", 10);
    int third = use("libfirst.so", 20);
    printf("%d %d %d\n", first, second, third);
    return 0;
}
