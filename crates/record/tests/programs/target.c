/* Waits for a letter on standard input, and does what it says; answers with a line.
   c N: calls landing(1) .. landing(N).  m: maps code, names itself, runs a thread that sleeps.
   t N: the same in a new thread.  p N: the same, and every 100th call sleeps 5 ms.  s: spins for 200 ms of CPU time.  q: ends. */
#define _GNU_SOURCE
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <time.h>
#include <unistd.h>

volatile unsigned long total;

static unsigned long sleeps;

__attribute__((noinline)) void landing(unsigned long number) {
    total += number;
    if (sleeps && number % sleeps == 0)
        usleep(5000);
}

static void *sleeper(void *unused) {
    usleep(20000);
    return unused;
}

static void *caller(void *calls) {
    for (unsigned long number = 1; number <= (unsigned long)calls; number++)
        landing(number);
    return NULL;
}

int main(void) {
    setvbuf(stdout, NULL, _IONBF, 0);
    printf("%p\n", (void *)landing);
    char line[64];
    while (fgets(line, sizeof line, stdin) && line[0] != 'q') {
        if (line[0] == 'c' || line[0] == 'p') {
            sleeps = line[0] == 'p' ? 100 : 0;
            unsigned long calls = strtoul(line + 1, NULL, 10);
            for (unsigned long number = 1; number <= calls; number++)
                landing(number);
        } else if (line[0] == 't') {
            pthread_t thread;
            pthread_create(&thread, NULL, caller, (void *)strtoul(line + 1, NULL, 10));
            pthread_join(thread, NULL);
        } else if (line[0] == 'm') {
            void *map = mmap(NULL, 8192, PROT_READ | PROT_EXEC, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
            prctl(PR_SET_NAME, "renamed");
            pthread_t thread;
            pthread_create(&thread, NULL, sleeper, NULL);
            pthread_join(thread, NULL);
            printf("%p\n", map);
            continue;
        } else if (line[0] == 's') {
            struct timespec begin, now;
            clock_gettime(CLOCK_THREAD_CPUTIME_ID, &begin);
            do {
                total++;
                clock_gettime(CLOCK_THREAD_CPUTIME_ID, &now);
            } while ((now.tv_sec - begin.tv_sec) * 1000000000L + now.tv_nsec - begin.tv_nsec < 200000000L);
        }
        printf("done\n");
    }
    return 0;
}
