#pragma once

#include "../../core/detail/light_std.hpp"
#include "../../core/detail/namespace.hpp"
#include "../../core/dtype.hpp"
#include "../collective_tag.hpp"
#include "../traffic_count.hpp"

#include <array>
#include <atomic>
#include <cstddef>
#include <cstdint>
#include <new>
#include <span>
#include <string>
#include <string_view>
#include <vector>

namespace ZERO_NAMESPACE::detail {

/// @brief The arguments of a collective that must be equal on all ranks of a group. Used by all
/// transports for checks and messages.
struct CollectiveCall {
    CollectiveKind kind{};
    DType type{};
    std::size_t count = 0;    ///< elements of all extents
    std::uint64_t detail = 0; ///< broadcast: the root; integers: the reduction, or 2 plus the
                              ///< number of summed ones; otherwise a hash of the cuts
    CollectiveTag tag{};

    /// @brief Returns `detail` of an all-reduce of integers whose first `sums` are summed and the
    /// others minimised.
    [[nodiscard]] static constexpr std::uint64_t detail_of(std::size_t sums) noexcept {
        return 2 + sums;
    }

    /// @brief Returns how many of `count` integers are summed; the others are minimised.
    [[nodiscard]] static constexpr std::size_t sums_of(std::uint64_t detail,
                                                       std::size_t count) noexcept {
        return detail == static_cast<std::uint64_t>(IntegerReduction::sum)   ? count
               : detail == static_cast<std::uint64_t>(IntegerReduction::min) ? 0
                                                                             : detail - 2;
    }

    /// @brief Returns how many integers of this all-reduce are summed.
    [[nodiscard]] std::size_t sums() const noexcept { return sums_of(detail, count); }

    friend bool operator==(CollectiveCall const& a, CollectiveCall const& b) noexcept {
        return a.kind == b.kind && a.type == b.type && a.count == b.count && a.detail == b.detail
               && a.tag.index == b.tag.index && a.tag.engine == b.tag.engine
               && std::string_view(a.tag.what) == std::string_view(b.tag.what);
    }
};

/// @brief Views untyped addresses as addresses of `T`, in place: the table belongs to the calling
/// collective.
template <class T>
T const* const* typed_pieces(void const* const* pieces, int world) {
    static_assert(sizeof(T const*) == sizeof(void const*));
    auto* const memory = const_cast<void const**>(pieces);
    T const** table = nullptr;
    for (int rank = world; rank-- > 0;) {
        auto const* const address = static_cast<T const*>(memory[rank]);
        table = ::new (static_cast<void*>(memory + rank)) T const*(address);
    }
    return table;
}

/// @brief Returns a hash of cuts (FNV-1a over the offsets).
std::uint64_t hash_of(std::span<std::size_t const> cuts) noexcept;

/// @brief Returns a text such as "'gradients of bucket 3', first parameter 'weight'".
std::string describe(CollectiveTag const& tag);

/// @brief Returns a text such as "reduce-scatter of 640 bfloat16 ('gradients of bucket 3', first
/// parameter 'weight', cuts 1234)".
std::string describe(CollectiveCall const& call);

/// @brief Returns the text for two ranks that disagree: "rank 0 called ..., rank 2 called ...". It
/// names the engines if they differ.
std::string describe(std::size_t first_rank, CollectiveCall const& first, std::size_t rank,
                     CollectiveCall const& other);

/// @brief Returns the W + 1 offsets that give every rank the same number of elements.
std::vector<std::size_t> uniform_cuts(std::size_t world, std::size_t elements);

/// @brief Returns whether there are world + 1 offsets that begin with 0 and do not decrease.
bool are_cuts(std::span<std::size_t const> cuts, std::size_t world) noexcept;

/// @brief Reports calls that differ between ranks. @throws CollectiveMismatch always
[[noreturn]] void throw_mismatch(std::string_view difference);

/// @brief Reports that two threads call the communicator of one rank. @throws OutOfOrder always
[[noreturn]] void throw_second_thread(CollectiveTag const& tag);

/// @brief Refuses a second thread while one is in a call of a rank.
class SoleThread {
public:
    /// @throws OutOfOrder if another thread is in a call
    SoleThread(bool& is_in_use, CollectiveTag const& tag) : _is_in_use(is_in_use) {
        if (_is_in_use.exchange(true, std::memory_order_acq_rel)) {
            throw_second_thread(tag);
        }
    }
    SoleThread(SoleThread const&) = delete;
    SoleThread& operator=(SoleThread const&) = delete;
    ~SoleThread() { _is_in_use.store(false, std::memory_order_release); }

private:
    std::atomic_ref<bool> _is_in_use;
};

/// @brief A collective call as words that ranks exchange. Used by `Checked`: engine, kind and type,
/// count, detail, index, the first 32 characters of the tag's text and of its parameter, and the
/// first 96 of its context. The context is not compared.
class CallSignature {
public:
    static constexpr std::size_t text_begin = 4;  ///< offset in words
    static constexpr std::size_t text_bytes = 32; ///< bytes of `what` and of `parameter`
    static constexpr std::size_t parameter_begin = text_begin + text_bytes / 8;    ///< in words
    static constexpr std::size_t context_begin = parameter_begin + text_bytes / 8; ///< in words
    static constexpr std::size_t context_bytes = 96;
    static constexpr std::size_t words =
        context_begin + context_bytes / 8;          ///< length of a signature
    using Words = std::array<std::uint64_t, words>; ///< as they are sent

    /// @brief Returns the words of a call.
    static Words of(CollectiveCall const& call) noexcept;

    /// @brief Returns the words that ranks gather to compare a call. The last one is 0, so it can
    /// carry a number.
    static Words of_compared(CollectiveTag const& tag) noexcept;

    /// @brief Returns the text for two ranks whose signatures differ, as `describe` gives it.
    static std::string difference(std::size_t first_rank, std::uint64_t const* first,
                                  std::size_t rank, std::uint64_t const* other);

    /// @brief Compares the signatures of all ranks, which are in rank order. Returns a text about
    /// the first one that differs from rank 0's; empty if all are equal.
    static std::string first_difference(std::span<std::uint64_t const> signatures);

    /// @brief Compares them likewise, after an all-gather. Ranks that find a difference meet again
    /// before they throw: one that threw at once would abort the collective while others read its
    /// result. @param gather_again repeats the all-gather @throws CollectiveMismatch on every rank
    static void require_equal(std::span<std::uint64_t const> signatures,
                              FunctionRef<> gather_again);

    /// @brief Returns a hash of what is compared, and of the number of the collective.
    static std::uint64_t hash_of(Words const& call, std::uint64_t number) noexcept;

    /// @brief Returns the text of the call with this signature, as `describe` gives it.
    static std::string text_of(std::uint64_t const* signature);

    /// @brief Names the collective of a number from 1 on; 0: none has begun.
    static std::string describe_call(Words const& call, std::uint64_t number);
};

} // namespace ZERO_NAMESPACE::detail

#if !defined(ZERO_COMPILED)
#include "collective_call.ipp"
#endif
