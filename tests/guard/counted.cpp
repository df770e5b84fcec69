#include "counted.hpp"

#include <cstdio>
#include <cstring>

// These functions replace those of the C library, which execute other instructions on other
// machines.

extern "C" void* memcpy(void* __restrict to, void const* __restrict from,
                        std::size_t bytes) noexcept {
    void* out = to;
    std::size_t words = bytes / 8;
    asm volatile("rep movsq" : "+D"(out), "+S"(from), "+c"(words) : : "memory");
    std::size_t rest = bytes % 8;
    asm volatile("rep movsb" : "+D"(out), "+S"(from), "+c"(rest) : : "memory");
    return to;
}

extern "C" void* memset(void* to, int value, std::size_t bytes) noexcept {
    void* out = to;
    auto const word = static_cast<unsigned char>(value) * 0x0101010101010101U;
    std::size_t words = bytes / 8;
    asm volatile("rep stosq" : "+D"(out), "+c"(words) : "a"(word) : "memory");
    std::size_t rest = bytes % 8;
    asm volatile("rep stosb" : "+D"(out), "+c"(rest) : "a"(word) : "memory");
    return to;
}

int main() {
    using namespace zero;
    for (auto const set : {host::InstructionSet::baseline, host::InstructionSet::avx2}) {
        if (host::use_instruction_set(set)) {
            test::count_hot_loops(set);
            test::count_steps(set);
        } else {
            std::printf("not on this machine: %s\n", host::name_of(set));
        }
    }
}
