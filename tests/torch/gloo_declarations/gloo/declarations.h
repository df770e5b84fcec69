#pragma once

// The part of gloo that LibTorch's header of the process group names. The packages of LibTorch
// contain gloo, but not its headers. The tests only pass pointers to these classes, so the classes
// declare no more than the functions that LibTorch overrides.

#include <chrono>
#include <memory>
#include <string>
#include <vector>

namespace gloo {

class Context {
public:
    void setTimeout(std::chrono::milliseconds); // a header of LibTorch 2.6 and later calls it
};

namespace rendezvous {

class Store {
public:
    virtual ~Store() = default;
    virtual void set(std::string const& key, std::vector<char> const& value) = 0;
    virtual std::vector<char> get(std::string const& key) = 0;
    virtual void wait(std::vector<std::string> const& keys) = 0;
    virtual void wait(std::vector<std::string> const& keys, std::chrono::milliseconds const&) = 0;
};

} // namespace rendezvous

namespace transport {

class Device;

class UnboundBuffer {
public:
    virtual ~UnboundBuffer() = default;
};

} // namespace transport
} // namespace gloo
