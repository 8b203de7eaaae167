// Virtual calls, templates, lambdas, operators, exceptions with cold landing pads.
#include <algorithm>
#include <cstdio>
#include <memory>
#include <stdexcept>
#include <string>
#include <vector>

namespace shapes {
struct Shape {
  virtual ~Shape() = default;
  virtual double area() const = 0;
  bool operator<(const Shape &other) const;
};
bool Shape::operator<(const Shape &other) const { return area() < other.area(); }

template <typename T> struct Square : Shape {
  T side;
  explicit Square(T side);
  double area() const override;
};
template <typename T> Square<T>::Square(T s) : side(s) {
  if (s < 0)
    throw std::invalid_argument("negative side " + std::to_string(s));
}
template <typename T> double Square<T>::area() const { return double(side) * side; }
template struct Square<int>;
template struct Square<double>;

__attribute__((noinline)) double largest(std::vector<std::unique_ptr<Shape>> &all) {
  std::sort(all.begin(), all.end(), [](const auto &a, const auto &b) { return *a < *b; });
  return all.empty() ? 0 : all.back()->area();
}
} // namespace shapes

int main(int argc, char **) {
  std::vector<std::unique_ptr<shapes::Shape>> all;
  try {
    for (int i = 0; i < 20; i++) {
      all.push_back(std::make_unique<shapes::Square<int>>(i * argc % 7));
      all.push_back(std::make_unique<shapes::Square<double>>(3 - i));
    }
  } catch (const std::exception &error) {
    std::printf("%s\n", error.what());
  }
  std::printf("%f\n", shapes::largest(all));
}
