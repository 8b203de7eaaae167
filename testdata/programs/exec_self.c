/*
 * Replaces itself by itself, with an argument.
 *
 * Calls: main, 2 times (once in each image): the first -> before_exec, once -> execv; the second ->
 * after_exec, once.
 */
#include "called.h"
#include <stdio.h>
#include <unistd.h>

CALLED static int before_exec(char *name)
{
    char *arguments[] = {name, "again", NULL};
    execv("/proc/self/exe", arguments);
    return 2;
}

CALLED static int after_exec(const char *argument)
{
    printf("after exec: %s\n", argument);
    return 4;
}

int main(int argc, char **argv)
{
    int status = argc == 1 ? before_exec(argv[0]) : after_exec(argv[1]);
    KEEP(status);
    return status;
}
