#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <new>

/// Plain loops that move the same bytes as a kernel and compute next to nothing: what the memory allows at best. They use the 16-byte vectors
/// that every x86-64 and AArch64 compiler has without a flag, so that they do not depend on the optimiser to be fast.
namespace bench {

using Word4 = std::uint32_t __attribute__((vector_size(16)));
using Half4 = std::uint16_t __attribute__((vector_size(8)));

template <class T>
class Array {
public:
    explicit Array(std::size_t n, T value = T{}) : _data(static_cast<T*>(::operator new (n * sizeof(T), std::align_val_t{128}))), _n(n) {
        std::uninitialized_fill_n(_data, n, value);
    }
    Array(Array const&) = delete;
    Array& operator=(Array const&) = delete;
    ~Array() { ::operator delete (_data, std::align_val_t{128}); }

    T* data() const { return _data; }
    std::size_t size() const { return _n; }
    T& operator[](std::size_t i) const { return _data[i]; }

private:
    T* _data;
    std::size_t _n;
};

inline Word4 load(void const* from) {
    Word4 word;
    __builtin_memcpy(&word, from, sizeof word);
    return word;
}

inline void store(void* to, Word4 word) {
    __builtin_memcpy(to, &word, sizeof word);
}

/// Parameters of GPT-2 124M.
inline constexpr std::size_t gpt2_elements = 124'439'808;

} // namespace bench
