/*
 * vfork and exec: the child borrows the parent's memory until it becomes another program (itself,
 * with an argument).
 *
 * Calls in the parent: main -> start, once -> vfork; main -> collect, once -> waitpid.
 * In the child: main -> in_child, once.
 */
#define _GNU_SOURCE
#include "called.h"
#include <stdio.h>
#include <sys/wait.h>
#include <unistd.h>

CALLED static pid_t start(char *name)
{
    char *arguments[] = {name, "child", NULL};
    pid_t child = vfork();
    if (child == 0) {
        execv("/proc/self/exe", arguments);
        _exit(127);
    }
    return child;
}

CALLED static int collect(pid_t child)
{
    int status = 0;
    waitpid(child, &status, 0);
    return WEXITSTATUS(status);
}

CALLED static int in_child(void) { return 9; }

int main(int argc, char **argv)
{
    if (argc > 1)
        return in_child();
    pid_t child = start(argv[0]);
    printf("child said %d\n", collect(child));
    return 0;
}
