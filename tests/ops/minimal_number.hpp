#pragma once

#include <zero/ops/arithmetic.hpp>
#include <zero/ops/number.hpp>

namespace zero::test {

/// The minimal number type. A functor that compiles with it uses only the functions of `ops`.
class Minimal {
public:
    struct Mask {
        using Number = Minimal;
        bool holds;
    };

    Minimal(float value) : _value(value) {} // implicit, like the packs

    static Minimal fma(Minimal const& a, Minimal const& b, Minimal const& c) {
        return ops::fma(a._value, b._value, c._value);
    }
    static Minimal mul(Minimal const& a, Minimal const& b) { return ops::mul(a._value, b._value); }
    static Minimal add(Minimal const& a, Minimal const& b) { return ops::add(a._value, b._value); }
    static Minimal sub(Minimal const& a, Minimal const& b) { return ops::sub(a._value, b._value); }
    static Minimal div(Minimal const& a, Minimal const& b) { return ops::div(a._value, b._value); }
    static Minimal root(Minimal const& a) { return ops::root(a._value); }
    static Mask less(Minimal const& a, Minimal const& b) { return {a._value < b._value}; }
    static Mask less_equal(Minimal const& a, Minimal const& b) { return {a._value <= b._value}; }
    static Minimal select(Mask const& mask, Minimal const& a, Minimal const& b) {
        return mask.holds ? a : b;
    }

    [[nodiscard]] float value() const { return _value; }

private:
    float _value;
};

static_assert(ops::Number<Minimal>);

} // namespace zero::test
