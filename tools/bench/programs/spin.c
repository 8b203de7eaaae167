// Sorts with a comparison by function pointer, and recurses: little code, many calls.
#include <stdio.h>
#include <stdlib.h>
static int cmp(const void *a, const void *b) { int x = *(const int *)a, y = *(const int *)b; return (x > y) - (x < y); }
__attribute__((noinline)) static int fib(int n) { return n < 2 ? n : fib(n - 1) + fib(n - 2); }
int main(int argc, char **argv) {
  int rounds = argc > 1 ? atoi(argv[1]) : 4;
  static int v[100000];
  unsigned s = 1;
  long sum = 0;
  for (int r = 0; r < rounds; r++) {
    for (int i = 0; i < 100000; i++) { s = s * 1103515245 + 12345; v[i] = s >> 8; }
    qsort(v, 100000, sizeof *v, cmp);
    sum += v[50000] + fib(24);
  }
  printf("%ld\n", sum);
}
