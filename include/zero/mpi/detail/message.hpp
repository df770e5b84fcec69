#pragma once

#include "../../comm/detail/call_signature.hpp"
#include "../../core/detail/light_std.hpp"
#include "../../core/detail/namespace.hpp"
#include "family.hpp"
#include "mpi.hpp"

#include <array>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <string_view>

namespace ZERO_NAMESPACE::mpi::detail {

/// @brief The kind of a message without data.
enum class MessageKind : std::uint8_t { heartbeat, provisional_failure, failure, goodbye };
inline constexpr std::size_t message_kinds = 4; ///< number of enumerators

/// @brief A message between the ranks of a communicator that carries no data. Its size stays below
/// the limit up to which MPI sends without asking the receiver.
struct Message {
    static constexpr std::size_t text_bytes = 512;

    MessageKind kind{};
    FailureKind failure{};
    std::uint64_t number = 0; ///< number of the sender's last collective
    zero::detail::CallSignature::Words call{};
    std::array<char, text_bytes> text{}; ///< ends with a zero

    void set_text(std::string_view from) noexcept {
        std::size_t const size = zero::detail::smaller(from.size(), text_bytes - 1);
        std::memcpy(text.data(), from.data(), size);
        text[size] = '\0';
    }
};

/// @brief A message to all peers, and the requests of its transfer.
struct Outgoing {
    Message message;
    zero::detail::List<MPI_Request> requests;
    bool is_sent = false;
};

} // namespace ZERO_NAMESPACE::mpi::detail
