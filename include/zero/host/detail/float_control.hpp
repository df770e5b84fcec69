#pragma once

#include "../../core/detail/namespace.hpp"

#include <cstdint>

namespace ZERO_NAMESPACE::host::detail {

/// The floating-point control word of a thread: MXCSR on x86-64, FPCR on 64-bit ARM. Elsewhere it
/// counts as the default one.
class FloatControl {
public:
#if defined(__x86_64__) && defined(__GNUC__)
    using Word = unsigned;
    static constexpr Word initial = 0x1f80; ///< as a process starts: to nearest, nothing flushed
    static constexpr Word sticky = 0x3f;    ///< flags of exceptions that happened

    [[gnu::always_inline]] static Word read() noexcept { return __builtin_ia32_stmxcsr(); }
    [[gnu::always_inline]] static void write(Word word) noexcept {
        __builtin_ia32_ldmxcsr(word);
        __asm__ volatile("" : : : "memory"); // later memory accesses are not moved before it
    }
#elif defined(__aarch64__) && defined(__GNUC__)
    using Word = std::uint64_t;
    static constexpr Word initial = 0;
    static constexpr Word sticky = 0;

    [[gnu::always_inline]] static Word read() noexcept {
        Word word;
        __asm__ volatile("mrs %0, fpcr" : "=r"(word));
        return word;
    }
    [[gnu::always_inline]] static void write(Word word) noexcept {
        __asm__ volatile("msr fpcr, %0" : : "r"(word) : "memory");
    }
#else
    using Word = unsigned;
    static constexpr Word initial = 0;
    static constexpr Word sticky = 0;

    static Word read() noexcept { return initial; }
    static void write(Word) noexcept {}
#endif
};

/// Gives the thread the default control word until the end of the scope, so that a program that
/// flushes subnormal numbers to zero or rounds in another direction changes no bit of a command. It
/// reads the word once, and writes it only if it differs.
class WithDefaultFloatControl {
public:
    [[gnu::always_inline]] WithDefaultFloatControl() noexcept : _before(FloatControl::read()) {
        if (is_other()) {
            FloatControl::write(FloatControl::initial);
        }
    }
    WithDefaultFloatControl(WithDefaultFloatControl const&) = delete;
    WithDefaultFloatControl& operator=(WithDefaultFloatControl const&) = delete;
    [[gnu::always_inline]] ~WithDefaultFloatControl() {
        if (is_other()) {
            FloatControl::write(_before);
        }
    }

private:
    [[nodiscard]] bool is_other() const noexcept {
        return (_before & ~FloatControl::sticky) != FloatControl::initial;
    }

    FloatControl::Word _before;
};

} // namespace ZERO_NAMESPACE::host::detail
