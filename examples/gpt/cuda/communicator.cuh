#pragma once

#include <zero/comm/loopback.hpp>
#include <zero/cuda/backend.cuh>
#ifdef GPT_HAS_NCCL
#include <zero/cuda/nccl.cuh>
#endif

#include <cstddef>
#include <cstdint>
#include <span>
#include <string_view>
#include <variant>

namespace gpt {

/// @brief A communicator of threads on one device or of processes over NCCL. The choice is made
/// when the program starts, so each stage is compiled once. Refers to one of the two; owns nothing.
class CudaCommunicator {
public:
    using policy_category = zero::CommunicatorCategory;
    using Backend = zero::cuda::Backend;
    using Queue = cudaStream_t;
    using Loopback = zero::Loopback<Backend>;
#ifdef GPT_HAS_NCCL
    using Inner = std::variant<Loopback*, zero::cuda::NcclCommunicator*>;
#else
    using Inner = std::variant<Loopback*>;
#endif

private:
    Inner _inner;

    template <class Body>
    auto visit(Body const& body) const {
        return std::visit([&](auto* inner) { return body(*inner); }, _inner);
    }

public:
    explicit CudaCommunicator(Inner inner) : _inner(inner) {}

    [[nodiscard]] int rank() const {
        return visit([](auto& inner) { return inner.rank(); });
    }
    [[nodiscard]] int size() const {
        return visit([](auto& inner) { return inner.size(); });
    }

    template <class T>
    void reduce_scatter(T const* send, T* receive, std::span<std::size_t const> cuts, Queue queue,
                        zero::CollectiveTag tag = {}) {
        visit([&](auto& inner) { inner.reduce_scatter(send, receive, cuts, queue, tag); });
    }
    template <class T>
    void all_gather(T const* send, T* receive, std::span<std::size_t const> cuts, Queue queue,
                    zero::CollectiveTag tag = {}) {
        visit([&](auto& inner) { inner.all_gather(send, receive, cuts, queue, tag); });
    }
    template <class T>
    void all_reduce(T const* send, T* receive, std::span<std::size_t const> cuts, Queue queue,
                    zero::CollectiveTag tag = {}) {
        visit([&](auto& inner) { inner.all_reduce(send, receive, cuts, queue, tag); });
    }
    template <class T>
    void broadcast(T* buffer, std::size_t elements, int root, Queue queue,
                   zero::CollectiveTag tag = {}) {
        visit([&](auto& inner) { inner.broadcast(buffer, elements, root, queue, tag); });
    }
    void all_reduce_integers(std::int64_t* values, std::size_t elements,
                             zero::IntegerReduction reduction, Queue queue,
                             zero::CollectiveTag tag = {}) {
        visit([&](auto& inner) {
            inner.all_reduce_integers(values, elements, reduction, queue, tag);
        });
    }
    void abort(std::string_view cause, bool is_provisional = false) noexcept {
        visit([&](auto& inner) { inner.abort(cause, is_provisional); });
    }
    void rethrow_failure() {
        visit([](auto& inner) {
            if constexpr (requires { inner.rethrow_failure(); }) {
                inner.rethrow_failure();
            }
        });
    }

    /// @brief Returns the bytes that this rank read from others; traffic between processes is not
    /// counted.
    [[nodiscard]] zero::TrafficCount traffic() const {
        return visit([](auto& inner) {
            if constexpr (requires { inner.traffic(); }) {
                return zero::TrafficCount(inner.traffic());
            } else {
                return zero::TrafficCount{};
            }
        });
    }
    void reset_traffic() {
        visit([](auto& inner) {
            if constexpr (requires { inner.reset_traffic(); }) {
                inner.reset_traffic();
            }
        });
    }
};
static_assert(zero::Communicator<CudaCommunicator>);

} // namespace gpt
