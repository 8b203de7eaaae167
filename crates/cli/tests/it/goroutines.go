// Two goroutines that wait for each other at a channel.
//
// Calls: main.main -> main.consume, once; main.main.func1 -> main.produce, once -> main.square, 4 times.
// Each goroutine has a stack of its own; the runtime goes from one to the other and back.
package main

//go:noinline
func square(n int) int { return n * n }

//go:noinline
func produce(out chan<- int) {
	for i := 1; i <= 4; i++ {
		out <- square(i)
	}
	close(out)
}

//go:noinline
func consume(in <-chan int) int {
	sum := 0
	for n := range in {
		sum += n
	}
	return sum
}

func main() {
	pipe := make(chan int)
	go produce(pipe)
	if consume(pipe) != 30 {
		panic("wrong sum")
	}
}
