/*
 * C++ virtual calls, templates, overloads, a lambda and operators: names that need demangling.
 * Needs nothing of the C++ run-time library but what the compiler emits itself.
 *
 * Calls: main -> shapes::total, once -> shapes::Square::area and shapes::Circle::area, 3 times each,
 * never shapes::Shape::area; main -> twice<int>, 2 times, and twice<long>, once;
 * main -> overloaded(int), overloaded(double), overloaded(char const*), once each;
 * main -> fold, once -> the lambda in main, 5 times;
 * main -> operator+(Vector, Vector), 2 times.
 */
#include "called.h"
#include <stdio.h>

namespace shapes {
struct Shape {
    CALLED virtual long area() const { return 0; }
};

struct Square : Shape {
    long side;
    explicit Square(long s) : side(s) {}
    CALLED long area() const override { return side * side; }
};

struct Circle : Shape {
    long radius;
    explicit Circle(long r) : radius(r) {}
    CALLED long area() const override { return radius * radius * 3; }
};

CALLED long total(const Shape *const *all, int count)
{
    long sum = 0;
    for (int i = 0; i < count; i++)
        sum += all[i]->area();
    return sum;
}
} // namespace shapes

template <typename T> CALLED T twice(T value) { return value + value; }

CALLED static int overloaded(int) { return 1; }
CALLED static int overloaded(double) { return 2; }
CALLED static int overloaded(const char *) { return 3; }

struct Vector {
    int x, y;
};

CALLED static Vector operator+(Vector a, Vector b) { return {a.x + b.x, a.y + b.y}; }

CALLED static int fold(int (*step)(int, int), int count)
{
    int sum = 0;
    for (int i = 0; i < count; i++)
        sum = step(sum, i);
    return sum;
}

int main()
{
    const shapes::Square small(2), large(5), middle(3);
    const shapes::Circle one(1), two(2), four(4);
    const shapes::Shape *all[] = {&small, &one, &large, &two, &middle, &four};
    long area = shapes::total(all, 6);
    long doubled = twice(3) + twice(4) + twice(5L);
    int kinds = overloaded(1) * 100 + overloaded(1.5) * 10 + overloaded("x");
    auto step = [](int sum, int i) CALLED { return sum + i * i; };
    int squares = fold(step, 5);
    Vector v = Vector{1, 2} + Vector{3, 4};
    v = v + Vector{10, 20};
    printf("%ld %ld %d %d %d,%d\n", area, doubled, kinds, squares, v.x, v.y);
    return 0;
}
