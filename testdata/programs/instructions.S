/*
 * Instructions that compilers seldom emit, without a C library.
 *
 * Calls: _start -> call_next, once (has a `call` to the next instruction, which is no function call);
 * _start -> pops_arguments, 2 times (returns by `ret 16`); _start -> repeats, once (rep movsb, repne
 * scasb, rep with a count of 0); _start -> loops, once (loop, loope, loopne, jrcxz both ways);
 * _start -> leaf_a, leaf_b through memory, 2 times each; _start -> decides, 2 times, which leaves by
 * a conditional jump to leaf_a once and returns itself once: leaf_a 3, leaf_b 2. Prints "ok", status 5.
 */
        .macro  function name
        .type   \name, @function
\name:
        .endm
        .macro  done name
        .size   \name, . - \name
        .endm

        .section .rodata
message: .ascii "ok\n"
        .balign 8
table:  .quad   leaf_a, leaf_b
text:   .ascii  "find the x in here"
        .set    text_length, . - text

        .bss
copy:   .skip   32

        .text
        .globl  _start
function _start
        xor     %ebp, %ebp
        call    call_next
        push    $1
        push    $2
        call    pops_arguments
        push    $3
        push    $4
        call    pops_arguments
        call    repeats
        call    loops
        xor     %ebx, %ebx
1:      call    *table(,%rbx,8)
        lea     table(,%rbx,8), %rax
        call    *(%rax)
        inc     %ebx
        cmp     $2, %ebx
        jne     1b
        mov     $1, %edi
        call    decides
        xor     %edi, %edi
        call    decides
        mov     $1, %eax
        mov     $1, %edi
        lea     message(%rip), %rsi
        mov     $3, %edx
        syscall
        mov     $60, %eax
        mov     $5, %edi
        syscall
        hlt
done _start

function call_next
        call    1f
1:      pop     %rax
        ret
done call_next

function pops_arguments
        mov     8(%rsp), %rax
        add     16(%rsp), %rax
        ret     $16
done pops_arguments

function repeats
        cld
        lea     text(%rip), %rsi
        lea     copy(%rip), %rdi
        mov     $text_length, %ecx
        rep movsb
        lea     copy(%rip), %rdi
        mov     $text_length, %ecx
        mov     $'x', %al
        repne scasb
        xor     %ecx, %ecx
        rep movsb
        rep stosq
        ret
done repeats

function loops
        mov     $5, %ecx
1:      nop
        loop    1b
        mov     $4, %ecx
2:      cmp     $2, %ecx
        loopne  2b
        mov     $3, %ecx
3:      cmp     %ecx, %ecx
        loope   3b
        jrcxz   4f
        hlt
4:      mov     $1, %ecx
        jrcxz   5f
        ret
5:      hlt
done loops

function leaf_a
        mov     $10, %eax
        ret
done leaf_a

function leaf_b
        mov     $20, %eax
        rep ret
done leaf_b

function decides
        test    %edi, %edi
        jnz     leaf_a
        ret
done decides

        .section .note.GNU-stack, "", @progbits
