#pragma once

#include <zero/comm/communicator.hpp>
#include <zero/host/host_backend.hpp>

/// The operations of a communicator but `abort`.
struct Operations {
    using policy_category = zero::CommunicatorCategory;
    using Backend = zero::HostBackend;
    int rank() const;
    int size() const;
    template <class T>
    void reduce_scatter(T const*, T*, std::span<std::size_t const>, Backend::Queue,
                        zero::CollectiveTag);
    template <class T>
    void all_gather(T const*, T*, std::span<std::size_t const>, Backend::Queue,
                    zero::CollectiveTag);
    template <class T>
    void all_reduce(T const*, T*, std::span<std::size_t const>, Backend::Queue,
                    zero::CollectiveTag);
    template <class T>
    void broadcast(T*, std::size_t, int, Backend::Queue, zero::CollectiveTag);
    void all_reduce_integers(std::int64_t*, std::size_t, zero::IntegerReduction, Backend::Queue,
                             zero::CollectiveTag);
};

/// A communicator. The cases derive from it.
struct Complete : Operations {
    void abort(std::string_view cause, bool is_provisional) noexcept;
};
