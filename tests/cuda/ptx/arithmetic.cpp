#include "cuda/ptx/machine.hpp"
#include "cuda/ptx/opcode.hpp"

#include <cmath>

namespace zero::test::ptx {

namespace {

template <class T>
constexpr bool is_floating = std::is_floating_point_v<T>;

struct Add {
    template <class T>
    T operator()(T a, T b) const {
        if constexpr (is_floating<T>) {
            return a + b;
        } else {
            return static_cast<T>(static_cast<u64>(a) + static_cast<u64>(b)); // wraps
        }
    }
};
struct Subtract {
    template <class T>
    T operator()(T a, T b) const {
        if constexpr (is_floating<T>) {
            return a - b;
        } else {
            return static_cast<T>(static_cast<u64>(a) - static_cast<u64>(b));
        }
    }
};
struct Multiply {
    template <class T>
    T operator()(T a, T b) const {
        if constexpr (is_floating<T>) {
            return a * b;
        } else {
            return static_cast<T>(static_cast<u64>(a) * static_cast<u64>(b));
        }
    }
};
__extension__ using s128 = __int128;
__extension__ using u128 = unsigned __int128;

/// The upper half of a product.
struct MultiplyHigh {
    template <class T>
    T operator()(T a, T b) const {
        using Wide = std::conditional_t<std::is_signed_v<T>, s128, u128>;
        return static_cast<T>(static_cast<Wide>(a) * static_cast<Wide>(b) >> 8 * sizeof(T));
    }
};
struct Divide {
    template <class T>
    T operator()(T a, T b) const {
        if constexpr (is_floating<T>) {
            return a / b;
        } else if (b == 0) {
            return static_cast<T>(~T(0));
        } else if (std::is_signed_v<T> && b == static_cast<T>(-1)) {
            return Subtract{}(T(0), a);
        } else {
            return static_cast<T>(a / b);
        }
    }
};
struct Remainder {
    template <class T>
    T operator()(T a, T b) const {
        if (b == 0) {
            return a;
        }
        return std::is_signed_v<T> && b == static_cast<T>(-1) ? T(0) : static_cast<T>(a % b);
    }
};
/// Of a number and NaN, the number; -0 is less than 0.
template <bool is_least>
struct Extreme {
    template <class T>
    T operator()(T a, T b) const {
        if constexpr (is_floating<T>) {
            if (a != a || b != b) {
                return a != a ? b : a;
            }
            if (a == b) {
                return std::signbit(a) == is_least ? a : b;
            }
        }
        return (a < b) == is_least ? a : b;
    }
};

template <class T>
T input(Instruction const& i, T value) {
    if constexpr (is_floating<T>) {
        return i.flushes ? flushed(value) : value;
    } else {
        return value;
    }
}
template <class T>
T result(Instruction const& i, T value) {
    if constexpr (is_floating<T>) {
        value = canonical(value);
        return i.flushes ? flushed(value) : value;
    } else {
        return value;
    }
}

template <class T>
T source(Warp const& warp, Instruction const& i, std::size_t operand, u32 lane) {
    return input(i, warp.get<T>(i.operands[operand], lane));
}

template <class T, class Operation>
void run_binary(Warp& warp, Instruction const& i, Lanes lanes) {
    for_each_lane(lanes, [&](u32 lane) {
        T const a = source<T>(warp, i, 1, lane);
        T const b = source<T>(warp, i, 2, lane);
        warp.set(i.operands[0], lane, result(i, Operation{}(a, b)));
    });
}
template <class Operation>
Execute binary(Type type) {
    return for_number(type, []<class T>(Tag<T>) -> Execute { return run_binary<T, Operation>; });
}
template <class Operation>
Execute binary_of_integers(Type type) {
    return for_integer(type, []<class T>(Tag<T>) -> Execute { return run_binary<T, Operation>; });
}

/// a * b + c, rounded once.
template <class T>
void run_fma(Warp& warp, Instruction const& i, Lanes lanes) {
    for_each_lane(lanes, [&](u32 lane) {
        T const product_and_sum = std::fma(source<T>(warp, i, 1, lane), source<T>(warp, i, 2, lane),
                                           source<T>(warp, i, 3, lane));
        warp.set(i.operands[0], lane, result(i, product_and_sum));
    });
}
template <class T, class Product>
void run_mad(Warp& warp, Instruction const& i, Lanes lanes) {
    for_each_lane(lanes, [&](u32 lane) {
        T const product =
            Product{}(warp.get<T>(i.operands[1], lane), warp.get<T>(i.operands[2], lane));
        warp.set(i.operands[0], lane, Add{}(product, warp.get<T>(i.operands[3], lane)));
    });
}

/// A product of twice the width, and a sum of that width in mad.wide.
template <class T>
void run_wide(Warp& warp, Instruction const& i, Lanes lanes) {
    using Wide =
        std::conditional_t<sizeof(T) == 2, std::conditional_t<std::is_signed_v<T>, s32, u32>,
                           std::conditional_t<std::is_signed_v<T>, s64, u64>>;
    for_each_lane(lanes, [&](u32 lane) {
        auto value = static_cast<Wide>(static_cast<Wide>(warp.get<T>(i.operands[1], lane))
                                       * static_cast<Wide>(warp.get<T>(i.operands[2], lane)));
        if (i.sources == 3) {
            value = Add{}(value, warp.get<Wide>(i.operands[3], lane));
        }
        warp.set(i.operands[0], lane, value);
    });
}
Execute wide(Type type) {
    return for_integer(type, []<class T>(Tag<T>) -> Execute {
        if constexpr (sizeof(T) < 8) {
            return run_wide<T>;
        } else {
            return nullptr;
        }
    });
}

struct Negate {
    template <class T>
    T operator()(T a) const {
        if constexpr (is_floating<T>) {
            return -a;
        } else {
            return Subtract{}(T(0), a);
        }
    }
};
struct Absolute {
    template <class T>
    T operator()(T a) const {
        if constexpr (is_floating<T>) {
            return std::fabs(a);
        } else {
            return a < T(0) ? Negate{}(a) : a;
        }
    }
};
struct SquareRoot {
    template <class T>
    T operator()(T a) const {
        return std::sqrt(a);
    }
};
struct Reciprocal {
    template <class T>
    T operator()(T a) const {
        return 1 / a;
    }
};
template <class T, class Operation>
void run_unary(Warp& warp, Instruction const& i, Lanes lanes) {
    for_each_lane(lanes, [&](u32 lane) {
        warp.set(i.operands[0], lane, result(i, Operation{}(source<T>(warp, i, 1, lane))));
    });
}
template <class Operation>
Execute unary(Type type) {
    return for_number(type, []<class T>(Tag<T>) -> Execute { return run_unary<T, Operation>; });
}
template <class Operation>
Execute unary_of_floats(Type type) {
    return for_floating(type, []<class T>(Tag<T>) -> Execute { return run_unary<T, Operation>; });
}

/// The second number with the sign of the first.
template <class T>
void run_copysign(Warp& warp, Instruction const& i, Lanes lanes) {
    for_each_lane(lanes, [&](u32 lane) {
        T const sign = warp.get<T>(i.operands[1], lane);
        warp.set(i.operands[0], lane, std::copysign(warp.get<T>(i.operands[2], lane), sign));
    });
}

/// Approximations are those of the host's library.
template <float (*function)(float)>
void run_approximation(Warp& warp, Instruction const& i, Lanes lanes) {
    for_each_lane(lanes, [&](u32 lane) {
        warp.set(i.operands[0], lane, canonical(function(warp.get<float>(i.operands[1], lane))));
    });
}
float exp2_of(float x) {
    return std::exp2(x);
}
float log2_of(float x) {
    return std::log2(x);
}
float sin_of(float x) {
    return std::sin(x);
}
float cos_of(float x) {
    return std::cos(x);
}
float tanh_of(float x) {
    return std::tanh(x);
}
float reciprocal_root_of(float x) {
    return 1 / std::sqrt(x);
}
Execute approximation(std::string const& name) {
    return name == "ex2"     ? run_approximation<exp2_of>
           : name == "lg2"   ? run_approximation<log2_of>
           : name == "sin"   ? run_approximation<sin_of>
           : name == "cos"   ? run_approximation<cos_of>
           : name == "tanh"  ? run_approximation<tanh_of>
           : name == "rsqrt" ? run_approximation<reciprocal_root_of>
                             : nullptr;
}

} // namespace

Execute arithmetic(Opcode const& opcode) {
    std::string const& name = opcode.name;
    Type const type = opcode.type();
    bool const is_float = type.kind == Type::Kind::floating;
    if ((name == "mul" || name == "mad") && opcode.has("wide")) {
        return wide(type);
    }
    if (name == "fma" || (name == "mad" && is_float)) {
        return for_floating(type, []<class T>(Tag<T>) -> Execute { return run_fma<T>; });
    }
    if (name == "mad") {
        return opcode.has("hi") ? for_integer(
                   type, []<class T>(Tag<T>) -> Execute { return run_mad<T, MultiplyHigh>; })
                                : for_integer(type, []<class T>(Tag<T>) -> Execute {
                                      return run_mad<T, Multiply>;
                                  });
    }
    if (name == "mul") {
        return opcode.has("hi") ? binary_of_integers<MultiplyHigh>(type) : binary<Multiply>(type);
    }
    if (name == "copysign") {
        return for_floating(type, []<class T>(Tag<T>) -> Execute { return run_copysign<T>; });
    }
    if (is_float && type.bytes == 4 && approximation(name) != nullptr) {
        return approximation(name);
    }
    return name == "add"    ? binary<Add>(type)
           : name == "sub"  ? binary<Subtract>(type)
           : name == "div"  ? binary<Divide>(type)
           : name == "rem"  ? binary_of_integers<Remainder>(type)
           : name == "min"  ? binary<Extreme<true>>(type)
           : name == "max"  ? binary<Extreme<false>>(type)
           : name == "neg"  ? unary<Negate>(type)
           : name == "abs"  ? unary<Absolute>(type)
           : name == "sqrt" ? unary_of_floats<SquareRoot>(type)
           : name == "rcp"  ? unary_of_floats<Reciprocal>(type)
                            : nullptr;
}

} // namespace zero::test::ptx
