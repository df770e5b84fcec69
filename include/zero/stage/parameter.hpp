#pragma once

#include "../core/detail/namespace.hpp"
#include "../core/detail/shared_function.hpp"
#include "../core/dtype.hpp"
#include "../layout/detail/partition/shape.hpp"
#include "../layout/parameter_spec.hpp"

#include <cstddef>
#include <initializer_list>
#include <optional>
#include <span>
#include <string>
#include <type_traits>
#include <utility>
#include <vector>

namespace ZERO_NAMESPACE::detail {

/// @brief A pointer in a registration. It converts like `T*`, and refuses other pointers with one
/// sentence instead of a list of constructors.
template <class T>
class TypedPointer {
public:
    // NOLINTBEGIN(google-explicit-constructor): it is a pointer
    constexpr TypedPointer() noexcept {} // NOLINT(modernize-use-equals-default): as Initialiser
    constexpr TypedPointer(std::nullptr_t) noexcept {}
    constexpr TypedPointer(T* pointer) noexcept : _pointer(pointer) {}

    template <class Other>
        requires(!std::is_convertible_v<Other*, T*>)
    constexpr TypedPointer(Other*) noexcept {
        static_assert(!std::is_same_v<Other, T const>,
                      "zero: training writes 'data' and 'gradient' of a registration, but this "
                      "pointer is const; give memory that may be written, or pass initial values "
                      "as 'initial'.");
        static_assert(std::is_same_v<Other, T const>,
                      "zero: 'initial', 'data' and 'gradient' of a registration point to the "
                      "stage's parameter or gradient type (float unless zero::Parameters<T> or "
                      "zero::GradientReduction<G> says otherwise), but this pointer has another "
                      "type; name that type in the stage, or convert the values.");
    }

    constexpr operator T*() const noexcept { return _pointer; }
    // NOLINTEND(google-explicit-constructor)

    /// @brief Returns the pointer itself, for functions that deduce its type.
    [[nodiscard]] constexpr T* get() const noexcept { return _pointer; }

private:
    T* _pointer = nullptr;
};

} // namespace ZERO_NAMESPACE::detail

namespace ZERO_NAMESPACE {

/// @brief A callback `void(std::size_t begin, std::span<T> values)` that fills elements [begin,
/// begin + values.size()) of a parameter, or none. Copies share the callback.
/// @tparam T type of the parameters
template <class T>
using Initialiser = detail::SharedFunction<void, std::size_t, std::span<T>>;

/// @brief One parameter as the caller registers it. The caller's model needs no change.
///
/// Register parameters in their order of use in the forward pass. Names, sizes, units, groups and
/// trainability must be the same on every rank. The values of rank 0 are broadcast to all ranks,
/// unless every rank may compute them (`is_deterministic`).
///
/// Memory that the engine reads once is `initial`; memory that it uses for training is `data`. An
/// engine that owns its parameters (`Storage::owned`) would train a copy of `data`, and stage 3
/// keeps shards only, so both refuse it with InvalidArgument.
/// @tparam T type of the parameters, @tparam G type of the gradients
template <class T, class G = T>
struct Parameter {
    std::string name;                        ///< unique
    detail::TypedPointer<T const> initial{}; ///< initial values of an owned parameter, read during
                                             ///< construction only; several may begin at the same
                                             ///< address; null: zeros
    detail::TypedPointer<T> data{}; ///< for adopted or scattered storage: the memory that holds the
                                    ///< parameter. Owned storage refuses it, in every stage
    std::size_t elements = 0;       ///< any number; `zero::describe` lists parameters with 0
    std::vector<std::size_t> units{0}; ///< the units that use it, numbered in order of use from 0;
                                       ///< several for a tied parameter
    std::size_t group = 0; ///< its `ParameterGroup`: an index into options.groups; if that is
                           ///< empty, less than the number of parameters
    bool trainable = true; ///< false: frozen, without gradient and optimizer state
    /// Rows of the row-major matrix that its elements form, for optimizers of whole parameters: the
    /// product of the first dimensions of `shape`, if that is given. 0: the first of several
    /// dimensions of `shape`; otherwise not a matrix.
    std::size_t rows = 0;
    /// Caller-owned memory for its gradient, which is read only in micro-steps that call
    /// `begin_gradients` or `gradients_ready` for its unit. null: the gradient is in the engine's
    /// buckets, without a copy. A frozen parameter has none.
    detail::TypedPointer<G> gradient{};
    /// Sizes of its dimensions, row-major, for checkpoints. Optional; if given, `elements` may be
    /// left out, and the `rows` of a matrix as well.
    std::vector<std::size_t> shape{};
    /// Fills elements [begin, begin + values.size()) of an owned parameter. Called on rank 0
    /// instead of reading `initial`, which must then be null. An exception that it throws leaves
    /// the constructor, and the other ranks throw Aborted with its text.
    Initialiser<T> initialise{};
    /// Whether `initialise` gives each element the same value on every rank and in every call: as a
    /// function of the element's number (`ops::uniform`), or from a file that every rank can read.
    /// Without `initialise` the values are zeros. Each rank calls it for what it owns, at any
    /// `begin`, several ranks at the same time. Nothing is sent in stage 3; stages 0 to 2 gather
    /// the results. Buckets that also hold other parameters are filled on rank 0 and sent. Pass
    /// the same on every rank.
    bool is_deterministic = false;
    /// Whether `Muon` orthogonalises it; default: the choice of its group, or `matrix` with `rows`.
    /// A `shape` of two dimensions needs a choice, because embeddings have one as well. With other
    /// optimizers `matrix` has no effect, which `zero::describe` says.
    std::optional<Update> update{};
    Tile tile{}; ///< set by `tiles`: the parameter that it is a part of
    /// Which of the ranks that share a copy of the model count it (`Groups<C, ModelParallel>`).
    /// Replicas have one name, equal values, and equal gradients.
    CountsOn counts_on = CountsOn::every_model_rank;
};

/// @brief A parameter of any type. A model with several parameter types registers a list of these,
/// and every engine works on them.
struct AnyParameter {
    /// @brief Erases the type; numbers and pointers are kept. Implicit, for lists of parameters of
    /// several types.
    template <class T, class G>
    AnyParameter(Parameter<T, G> const& parameter) // NOLINT(google-explicit-constructor)
        : spec{parameter.name,
               detail::elements_of(parameter.elements, parameter.shape),
               parameter.units,
               parameter.group,
               parameter.trainable,
               0,
               parameter.update == Update::elements
                   ? parameter.rows
                   : detail::rows_of(parameter.rows, parameter.shape),
               parameter.gradient != nullptr ? GradientMemory::caller : GradientMemory::engine,
               parameter.shape,
               parameter.tile,
               !parameter.update && parameter.rows != 0 ? Update::matrix : parameter.update,
               parameter.counts_on},
          type(dtype_of<T>()), gradient_type(dtype_of<G>()), initial(parameter.initial),
          data(parameter.data), gradient(parameter.gradient),
          is_deterministic(parameter.is_deterministic) {
        if (parameter.initialise) {
            initialise = [fill = parameter.initialise](std::size_t begin,
                                                       std::span<std::byte> bytes) {
                fill(begin,
                     std::span<T>(reinterpret_cast<T*>(bytes.data()), bytes.size() / sizeof(T)));
            };
        }
    }

    ParameterSpec spec;                  ///< the properties on which the layout depends
    DType type;                          ///< type of the parameter
    DType gradient_type;                 ///< type of its gradient
    void const* initial;                 ///< as in `Parameter`
    void* data;                          ///< as in `Parameter`
    void* gradient;                      ///< as in `Parameter`
    Initialiser<std::byte> initialise{}; ///< as in `Parameter`, for the bytes of the values
    bool is_deterministic;               ///< as in `Parameter`
};

/// @brief The list of registrations that a stage is constructed from: a span, vector, array or
/// braced list of them.
///
/// A parameter type only: it refers to the caller's list, and the stage copies what it needs.
/// @tparam Registration of the stage
template <class Registration>
class Registrations {
public:
    // NOLINTBEGIN(google-explicit-constructor,bugprone-forwarding-reference-overload): it stands
    // for the list, and a copy refers to the same
    /// @brief Refers to a braced list.
    Registrations(std::initializer_list<Registration> list) noexcept
        : _list(list.begin(), list.size()) {}

    /// @brief Refers to a contiguous list.
    template <class List>
        requires std::is_convertible_v<List, std::span<Registration const>>
    Registrations(List&& list) : _list(std::forward<List>(list)) {}

    /// @brief Refers to the elements from `first`. @param last their end or number
    template <class First, class Last>
        requires std::is_constructible_v<std::span<Registration const>, First, Last>
    Registrations(First first, Last last) : _list(first, last) {}

    operator std::span<Registration const>() const noexcept { return _list; } ///< the list
    // NOLINTEND(google-explicit-constructor,bugprone-forwarding-reference-overload)

private:
    std::span<Registration const> _list;
};

} // namespace ZERO_NAMESPACE
