/*
 * Forks a child and waits for it.
 *
 * Calls: main -> in_parent, once, in the parent; main -> in_child, once, in the child; main ->
 * collect, once -> waitpid, in the parent.
 */
#include "called.h"
#include <stdio.h>
#include <sys/wait.h>
#include <unistd.h>

CALLED static int in_child(void) { return 6; }
CALLED static int in_parent(int n) { return n + 1; }

CALLED static int collect(pid_t child)
{
    int status = 0;
    waitpid(child, &status, 0);
    return WEXITSTATUS(status);
}

int main(void)
{
    pid_t child = fork();
    if (child == 0)
        _exit(in_child());
    int sum = in_parent(1);
    sum += collect(child);
    printf("sum = %d\n", sum);
    return 0;
}
