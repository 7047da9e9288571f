// For the C++ parts: exceptions as messages, since none may reach Rust.
#pragma once

#include <c10/util/Exception.h>

#include <cstring>

namespace {

// Room for a message, its closing zero included; Rust's sides say the same.
constexpr size_t ERROR_BYTES = 512;

int say(char* error, const char* text) {
  std::strncpy(error, text, ERROR_BYTES - 1);
  error[ERROR_BYTES - 1] = 0;
  return 1;
}

template <class Body>
int guarded(char* error, Body body) noexcept {
  try {
    body();
    return 0;
  } catch (const c10::Error& e) {
    return say(error, e.what_without_backtrace());
  } catch (const std::exception& e) {
    return say(error, e.what());
  } catch (...) {
    return say(error, "an exception of unknown type");
  }
}

}  // namespace
