// Connects ranks on several machines over TCP, for the communicator of
// docs/guides/own_communicator.md.

#pragma once

#include "socket_communicator.hpp"

#include <cerrno>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <netdb.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <poll.h>
#include <string>
#include <sys/socket.h>
#include <thread>
#include <unistd.h>
#include <utility>
#include <vector>

/// The address at which a rank listens.
struct Address {
    std::string host;
    std::uint16_t port = 0;
};

/// A socket that closes itself.
class Socket {
public:
    explicit Socket(int number) : _number(number) {}
    Socket(Socket const&) = delete;
    Socket& operator=(Socket const&) = delete;
    ~Socket() {
        if (_number >= 0) ::close(_number);
    }
    [[nodiscard]] int get() const { return _number; }
    int release() { return std::exchange(_number, -1); }

private:
    int _number;
};

/// The socket on which this rank awaits the higher ranks. Port 0 asks the system for a free one.
class Listener {
public:
    explicit Listener(std::uint16_t port = 0) : _socket(::socket(AF_INET, SOCK_STREAM, 0)) {
        int const reuse = 1;
        ::setsockopt(_socket.get(), SOL_SOCKET, SO_REUSEADDR, &reuse, sizeof(reuse));
        ::sockaddr_in address{};
        address.sin_family = AF_INET;
        address.sin_addr.s_addr = INADDR_ANY;
        address.sin_port = htons(port);
        ::socklen_t size = sizeof(address);
        auto* const any = reinterpret_cast<::sockaddr*>(&address);
        if (::bind(_socket.get(), any, size) != 0 || ::listen(_socket.get(), 128) != 0
            || ::getsockname(_socket.get(), any, &size) != 0)
            throw zero::CommunicatorError(
                "Listener: port " + std::to_string(port) + " cannot be opened.", errno);
        _port = ntohs(address.sin_port);
    }
    [[nodiscard]] int get() const { return _socket.get(); }
    [[nodiscard]] std::uint16_t port() const { return _port; }

private:
    Socket _socket;
    std::uint16_t _port = 0;
};

/// The first bytes on each connection: the rank that calls, and which of the two sockets this is.
/// Both machines must have the same byte order, which the collectives need as well.
struct Hello {
    std::uint32_t rank = 0;
    std::uint32_t is_control = 0;
};

inline int connect_to(Address const& address, std::chrono::steady_clock::time_point until) {
    ::addrinfo wanted{};
    wanted.ai_family = AF_INET;
    wanted.ai_socktype = SOCK_STREAM;
    ::addrinfo* found = nullptr;
    if (::getaddrinfo(address.host.c_str(), std::to_string(address.port).c_str(), &wanted, &found)
        != 0)
        throw zero::InvalidArgument("connect_ranks: there is no host '" + address.host + "'.");
    std::unique_ptr<::addrinfo, decltype(&::freeaddrinfo)> const owner(found, ::freeaddrinfo);
    while (true) { // the other rank may not listen yet
        Socket socket(::socket(AF_INET, SOCK_STREAM, 0));
        if (::connect(socket.get(), found->ai_addr, found->ai_addrlen) == 0)
            return socket.release();
        if (std::chrono::steady_clock::now() > until)
            throw zero::TimedOut("connect_ranks: no rank listens at " + address.host + ":"
                                 + std::to_string(address.port) + ".");
        std::this_thread::sleep_for(std::chrono::milliseconds(20));
    }
}

/// Connects this rank with all others: it calls the lower ones, and the higher ones call it.
/// Collective. @param addresses one for each rank; `listener` listens at that of this rank
inline std::vector<Link> connect_ranks(int rank, std::vector<Address> const& addresses,
                                       Listener const& listener, std::chrono::seconds time_out) {
    auto const own = static_cast<std::size_t>(rank);
    auto const until = std::chrono::steady_clock::now() + time_out;
    std::vector<Link> links(addresses.size());
    auto const keep = [&](std::size_t peer, bool is_control, int socket) {
        int const at_once = 1; // small messages must not wait for more
        ::setsockopt(socket, IPPROTO_TCP, TCP_NODELAY, &at_once, sizeof(at_once));
        (is_control ? links[peer].control : links[peer].data) = socket;
    };
    for (std::size_t peer = 0; peer < own; ++peer) {
        for (bool const is_control : {false, true}) {
            int const socket = connect_to(addresses[peer], until);
            keep(peer, is_control, socket);
            Hello const hello{static_cast<std::uint32_t>(rank), is_control ? 1U : 0U};
            (void)::send(socket, &hello, sizeof(hello), MSG_NOSIGNAL);
        }
    }
    for (std::size_t missing = 2 * (addresses.size() - 1 - own); missing > 0; --missing) {
        ::pollfd waiting{listener.get(), POLLIN, 0};
        auto const left = std::chrono::duration_cast<std::chrono::milliseconds>(time_out);
        if (::poll(&waiting, 1, static_cast<int>(left.count())) <= 0)
            throw zero::TimedOut("connect_ranks: " + std::to_string(missing)
                                 + " connections of higher ranks are missing on rank "
                                 + std::to_string(rank) + ".");
        Socket socket(::accept(listener.get(), nullptr, nullptr));
        Hello hello;
        if (::recv(socket.get(), &hello, sizeof(hello), MSG_WAITALL)
                != static_cast<::ssize_t>(sizeof(hello))
            || hello.rank <= own || hello.rank >= addresses.size())
            throw zero::CommunicatorError("connect_ranks: a stranger called.");
        keep(hello.rank, hello.is_control != 0, socket.release());
    }
    return links;
}
